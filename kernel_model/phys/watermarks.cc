// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/watermarks.h"

#include <algorithm>

namespace faultline::kernel {
namespace {

constexpr std::uint64_t kMinFreeFloor = 128;  // kB
constexpr std::uint64_t kPcpTypes = 3;        // MIGRATE_PCPTYPES

std::uint64_t int_sqrt(std::uint64_t n) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1)
    if ((root + bit) * (root + bit) <= n) root += bit;
  return root;
}

std::uint64_t sum(const std::vector<std::uint64_t>& v) {
  std::uint64_t s = 0;
  for (const auto n : v) s += n;
  return s;
}

// Stands for: __setup_per_zone_wmarks().
std::vector<Watermarks> setup_per_zone_wmarks(std::uint64_t min_free_kbytes,
                                              unsigned page_kb, unsigned scale_factor,
                                              const std::vector<std::uint64_t>& managed) {
  const std::uint64_t pages_min = min_free_kbytes / page_kb;
  std::vector<Watermarks> zones;
  for (const std::uint64_t pages : managed) {
    Watermarks w;
    w.min = pages_min * pages / sum(managed);
    const std::uint64_t gap = std::max(w.min / 4, pages * scale_factor / 10'000);
    w.low = w.min + gap;
    w.high = w.min + 2 * gap;
    zones.push_back(w);
  }
  return zones;
}

// Stands for: set_recommended_min_free_kbytes().  In kB.
std::uint64_t recommended_for_thp(const arch::Geometry& geometry, std::size_t zones,
                                  std::uint64_t free_buffer_pages, unsigned page_kb) {
  const std::uint64_t pageblock = std::uint64_t{1}
                                  << std::min(geometry.pmd_order(), geometry.max_order);
  const std::uint64_t pages = pageblock * zones * (2 + kPcpTypes * kPcpTypes);
  return std::min(pages, free_buffer_pages / 20) * page_kb;
}

}  // namespace

WatermarkSetup init_per_zone_wmark_min(const arch::Geometry& geometry,
                                       const KernelConfig& config,
                                       const std::vector<std::uint64_t>& managed) {
  const unsigned page_kb = static_cast<unsigned>(geometry.page_size() / 1024);
  const auto zones_at = [&](std::uint64_t kbytes) {
    return setup_per_zone_wmarks(kbytes, page_kb, config.watermark_scale_factor, managed);
  };
  WatermarkSetup setup;
  if (config.min_free_kbytes != 0) {
    setup.min_free_kbytes = config.min_free_kbytes;
    setup.zones = zones_at(setup.min_free_kbytes);
    return setup;
  }
  setup.min_free_kbytes = std::clamp<std::uint64_t>(
      int_sqrt(sum(managed) * page_kb * 16), kMinFreeFloor, config.min_free_kbytes_cap);
  setup.zones = zones_at(setup.min_free_kbytes);
  if (!geometry.has_thp || config.thp_enabled == ThpEnabled::kNever) return setup;

  std::uint64_t free_buffer_pages = sum(managed);
  for (const Watermarks& w : setup.zones)
    free_buffer_pages -= std::min(w.high, free_buffer_pages);
  const std::uint64_t recommended =
      recommended_for_thp(geometry, managed.size(), free_buffer_pages, page_kb);
  if (recommended > setup.min_free_kbytes) {
    setup.min_free_kbytes = recommended;
    setup.zones = zones_at(recommended);
  }
  return setup;
}

}  // namespace faultline::kernel
