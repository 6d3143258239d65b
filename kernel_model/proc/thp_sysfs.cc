// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/thp_sysfs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"

namespace faultline::kernel {
namespace {

// "always [madvise] never": all values, the present one marked.
std::string choice(std::initializer_list<std::string_view> values, std::string_view now) {
  std::string line;
  for (const std::string_view value : values) {
    if (!line.empty()) line += ' ';
    line += value == now ? "[" + std::string(value) + "]" : std::string(value);
  }
  return line + "\n";
}

std::string_view enabled(const Kernel& kernel) {
  constexpr std::array<std::string_view, 3> kNames{"always", "madvise", "never"};
  return kNames[static_cast<std::size_t>(kernel.config().thp_enabled)];
}

std::string_view defrag(const Kernel& kernel) {
  constexpr std::array<std::string_view, 5> kNames{"always", "defer", "defer+madvise",
                                                   "madvise", "never"};
  return kNames[static_cast<std::size_t>(kernel.config().thp_defrag)];
}

std::string number(std::uint64_t n) {
  return std::to_string(n) + "\n";
}

void khugepaged(std::vector<PseudoFile>& files, Kernel& kernel) {
  const Khugepaged& k = kernel.mm_shared().khugepaged;
  const KhugepagedKnobs& knobs = k.knobs();
  const auto add = [&](const char* name, std::uint64_t value) {
    files.push_back({std::string("khugepaged/") + name, number(value)});
  };
  add("alloc_sleep_millisecs", knobs.alloc_sleep_millisecs);
  add("defrag", knobs.defrag ? 1 : 0);
  add("full_scans", k.full_scans());
  add("max_ptes_none", knobs.max_ptes_none);
  if (kernel.version() >= 5008) add("max_ptes_shared", knobs.max_ptes_shared);
  if (kernel.version() >= 4008) add("max_ptes_swap", knobs.max_ptes_swap);
  add("pages_collapsed", k.pages_collapsed());
  add("pages_to_scan", knobs.pages_to_scan);
  add("scan_sleep_millisecs", knobs.scan_sleep_millisecs);
}

std::string_view mthp_enabled(const Kernel& kernel, std::uint64_t size) {
  const KernelConfig& config = kernel.config();
  const auto holds = [&](const std::vector<std::uint64_t>& sizes) {
    return std::ranges::find(sizes, size) != sizes.end();
  };
  if (size == kernel.profile().geometry.pmd_size() || holds(config.mthp_inherit))
    return "inherit";
  if (holds(config.mthp_always)) return "always";
  return holds(config.mthp_madvise) ? "madvise" : "never";
}

// One size.  Counters came with 6.10, splits with 6.11, the two gauges with 6.12.
void size_files(std::vector<PseudoFile>& files, Kernel& kernel, unsigned order) {
  const std::uint64_t size = kernel.profile().geometry.page_size() << order;
  const std::string folder = "hugepages-" + std::to_string(size >> 10) + "kB/";
  files.push_back({folder + "enabled", choice({"always", "inherit", "madvise", "never"},
                                              mthp_enabled(kernel, size))});
  const MthpStat& stat = kernel.mm_shared().mthp_stats[order];
  const auto add = [&](unsigned since, const char* name, std::uint64_t value) {
    if (kernel.version() >= since)
      files.push_back({folder + "stats/" + name, number(value)});
  };
  add(6010, "anon_fault_alloc", stat.anon_fault_alloc);
  add(6010, "anon_fault_fallback", stat.anon_fault_fallback);
  add(6010, "anon_fault_fallback_charge", stat.anon_fault_fallback_charge);
  add(6012, "nr_anon", stat.nr_anon);
  add(6012, "nr_anon_partially_mapped", stat.nr_anon_partially_mapped);
  add(6011, "split", stat.split);
  add(6011, "split_deferred", stat.split_deferred);
  add(6011, "split_failed", stat.split_failed);
}

}  // namespace

std::vector<PseudoFile> thp_sysfs(Kernel& kernel) {
  std::vector<PseudoFile> files;
  const arch::Geometry& geometry = kernel.profile().geometry;
  if (!geometry.has_thp) return files;
  // defer+madvise came with 4.11.
  files.push_back(
      {"defrag", kernel.version() >= 4011
                     ? choice({"always", "defer", "defer+madvise", "madvise", "never"},
                              defrag(kernel))
                     : choice({"always", "madvise", "never"}, defrag(kernel))});
  files.push_back({"enabled", choice({"always", "madvise", "never"}, enabled(kernel))});
  if (kernel.version() >= 4010)
    files.push_back({"hpage_pmd_size", number(geometry.pmd_size())});
  if (kernel.version() >= 6012)
    files.push_back({"shrink_underused", number(kernel.config().shrink_underused ? 1 : 0)});
  if (kernel.version() >= 3008)
    files.push_back({"use_zero_page", number(kernel.config().use_zero_page ? 1 : 0)});
  khugepaged(files, kernel);
  if (kernel.version() >= 6008)
    for (unsigned order = 2; order <= geometry.pmd_order(); ++order)
      size_files(files, kernel, order);
  return files;
}

}  // namespace faultline::kernel
