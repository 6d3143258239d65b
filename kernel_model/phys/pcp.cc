// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/pcp.h"

#include <algorithm>
#include <bit>

namespace faultline::kernel {

PcpSizes pcp_sizes(PcpRules rules, unsigned page_shift, unsigned pageblock_order,
                   std::uint64_t managed, std::uint64_t low_watermark,
                   unsigned local_cpus) {
  constexpr unsigned kCostlyOrder = 3;  // PAGE_ALLOC_COSTLY_ORDER
  const std::uint64_t cap =
      (rules == PcpRules::k4_15 ? 512U * 1024 : 1024U * 1024) >> page_shift;
  const std::uint64_t quarter =
      std::max<std::uint64_t>(std::min(managed / 1024, cap) / 4, 1);
  PcpSizes sizes;
  sizes.batch = static_cast<unsigned>(
      std::max<std::uint64_t>(std::bit_floor(quarter + quarter / 2) - 1, 1));
  if (rules != PcpRules::k5_14) {
    sizes.high = 6 * std::uint64_t{sizes.batch};
    return sizes;
  }
  sizes.high = std::max<std::uint64_t>(low_watermark / std::max(local_cpus, 1U),
                                       4 * std::uint64_t{sizes.batch});
  sizes.top_order = kCostlyOrder;
  sizes.huge_order = pageblock_order > kCostlyOrder ? pageblock_order : 0;
  return sizes;
}

void PfnRing::grow() {
  std::vector<Pfn> larger(std::max<std::size_t>(2 * slots_.size(), 16));
  for (std::uint32_t i = 0; i < size_; ++i) larger[i] = slots_[(first_ + i) & mask()];
  slots_.swap(larger);
  first_ = 0;
}

bool PerCpuPages::refill(Buddy& buddy, const PcpSizes& sizes, unsigned order,
                         MigrateType type, PfnRing& list) {
  const unsigned batch = sizes.batch > 1 ? std::max(sizes.batch >> order, 2U) : 1U;
  for (unsigned i = 0; i < batch; ++i) {
    const auto pfn = buddy.alloc(order, type);
    if (!pfn) break;
    list.push_back(*pfn);
    count_ += std::uint64_t{1} << order;
  }
  return !list.empty();
}

// Stands for: nr_pcp_free() and its caller: a growing share of the batch as long as only
// frees come.
void PerCpuPages::trim(Buddy& buddy, const PcpSizes& sizes, unsigned order,
                       MigrateType type) {
  std::uint64_t pages = sizes.batch;
  if (sizes.top_order != 0) {
    if (high_for(sizes, order) == 0) {
      pages = count_;
    } else {
      const std::uint64_t most =
          std::max<std::uint64_t>(sizes.high - sizes.batch, sizes.batch);
      pages = std::uint64_t{sizes.batch} << free_factor_;
      if (pages < most) ++free_factor_;
      pages = std::clamp<std::uint64_t>(pages, sizes.batch, most);
    }
  }
  free_bulk(buddy, sizes, pages, slot(sizes, order, type));
}

// List by list from `first` on, oldest blocks first, until `pages` are back.
void PerCpuPages::free_bulk(Buddy& buddy, const PcpSizes& sizes, std::uint64_t pages,
                            std::size_t first) {
  pages = std::min(pages, count_);
  for (std::size_t i = first; pages > 0; i = (i + 1) % kLists) {
    const unsigned order = order_of(sizes, i);
    const std::uint64_t size = std::uint64_t{1} << order;
    while (pages > 0 && !lists_[i].empty()) {
      buddy.free(lists_[i].pop_back(), order);
      count_ -= size;
      pages -= std::min(pages, size);
    }
  }
}

void PerCpuPages::drain(Buddy& buddy, const PcpSizes& sizes) {
  free_bulk(buddy, sizes, count_, 0);
}

}  // namespace faultline::kernel
