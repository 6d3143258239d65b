// SPDX-License-Identifier: Apache-2.0
//
// The per-CPU page lists of one CPU in front of one zone: a short stack of free blocks for
// each order kept here and each migrate type, refilled and drained in batches.
//
// Stands for: struct per_cpu_pages, rmqueue_bulk, free_pcppages_bulk (mm/page_alloc.c,
// v4.15-6.18). Model: no tuning of `high` at run time (6.7).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernel_model/config.h"
#include "kernel_model/phys/buddy.h"

namespace faultline::kernel {

// Sizes, the same for all CPUs of a zone.  In base pages.
struct PcpSizes {
  unsigned batch = 1;
  std::uint64_t high = 0;
  unsigned top_order = 0;   // orders 0 … top_order are kept
  unsigned huge_order = 0;  // and this one; 0: none
};
// Stands for: zone_batchsize(), zone_highsize().
[[nodiscard]] PcpSizes pcp_sizes(PcpRules rules, unsigned page_shift,
                                 unsigned pageblock_order, std::uint64_t managed,
                                 std::uint64_t low_watermark, unsigned local_cpus);

// A double-ended queue of frames in one block of memory.
class PfnRing {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  void push_front(Pfn pfn) {
    if (size_ == slots_.size()) grow();
    first_ = (first_ - 1) & mask();
    slots_[first_] = pfn;
    ++size_;
  }
  void push_back(Pfn pfn) {
    if (size_ == slots_.size()) grow();
    slots_[(first_ + size_) & mask()] = pfn;
    ++size_;
  }
  Pfn pop_front() {
    const Pfn pfn = slots_[first_];
    first_ = (first_ + 1) & mask();
    --size_;
    return pfn;
  }
  Pfn pop_back() {
    --size_;
    return slots_[(first_ + size_) & mask()];
  }

 private:
  [[nodiscard]] std::uint32_t mask() const {
    return static_cast<std::uint32_t>(slots_.size()) - 1;
  }
  void grow();
  std::vector<Pfn> slots_;  // a power of two of them
  std::uint32_t first_ = 0, size_ = 0;
};

class PerCpuPages {
 public:
  // An order that is kept here.
  [[nodiscard]] static bool keeps(const PcpSizes& sizes, unsigned order) {
    return order <= sizes.top_order || (order == sizes.huge_order && order != 0);
  }
  [[nodiscard]] MaybePfn alloc(Buddy& buddy, const PcpSizes& sizes, unsigned order,
                               MigrateType type) {
    PfnRing& list = lists_[slot(sizes, order, type)];
    if (list.empty() && !refill(buddy, sizes, order, type, list)) return std::nullopt;
    free_factor_ >>= 1;
    count_ -= std::uint64_t{1} << order;
    return list.pop_front();
  }
  // As many of order 0 as lie here, `most` at most; if none do, a batch is fetched and one
  // is taken.  Answers how many.
  std::uint32_t alloc_pages(Buddy& buddy, const PcpSizes& sizes, MigrateType type,
                            Pfn* pages, std::uint32_t most) {
    PfnRing& list = lists_[slot(sizes, 0, type)];
    std::uint32_t n = std::min(most, list.size());
    if (n == 0) {
      if (!refill(buddy, sizes, 0, type, list)) return 0;
      n = 1;
    }
    for (std::uint32_t i = 0; i < n; ++i) pages[i] = list.pop_front();
    free_factor_ >>= std::min(n, 31U);
    count_ -= n;
    return n;
  }
  // free() of a base page, if it fits in; else nothing.
  [[nodiscard]] bool free_page(const PcpSizes& sizes, Pfn pfn, MigrateType type) {
    if (count_ + 1 >= sizes.high) return false;
    lists_[slot(sizes, 0, type)].push_front(pfn);
    ++count_;
    return true;
  }
  void free(Buddy& buddy, const PcpSizes& sizes, Pfn pfn, unsigned order,
            MigrateType type) {
    lists_[slot(sizes, order, type)].push_front(pfn);
    count_ += std::uint64_t{1} << order;
    if (count_ >= high_for(sizes, order)) trim(buddy, sizes, order, type);
  }
  void drain(Buddy& buddy, const PcpSizes& sizes);
  [[nodiscard]] std::uint64_t count() const { return count_; }  // base pages

 private:
  static constexpr std::size_t kOrders = 5;  // 0-3 and the pageblock's
  static constexpr std::size_t kLists = kOrders * kMigrateTypes;
  [[nodiscard]] static std::size_t slot(const PcpSizes& sizes, unsigned order,
                                        MigrateType type) {
    const std::size_t row = order <= sizes.top_order ? order : kOrders - 1;
    return row * kMigrateTypes + static_cast<std::size_t>(type);
  }
  [[nodiscard]] static unsigned order_of(const PcpSizes& sizes, std::size_t slot) {
    const auto row = static_cast<unsigned>(slot / kMigrateTypes);
    return row == kOrders - 1 ? sizes.huge_order : row;
  }
  // Stands for: nr_pcp_high().  Blocks of a low order freed in a row go back at once.
  [[nodiscard]] std::uint64_t high_for(const PcpSizes& sizes, unsigned order) const {
    return free_factor_ != 0 && order != 0 && order <= sizes.top_order ? 0 : sizes.high;
  }
  bool refill(Buddy& buddy, const PcpSizes& sizes, unsigned order, MigrateType type,
              PfnRing& list);
  void trim(Buddy& buddy, const PcpSizes& sizes, unsigned order, MigrateType type);
  void free_bulk(Buddy& buddy, const PcpSizes& sizes, std::uint64_t pages,
                 std::size_t first);

  std::array<PfnRing, kLists> lists_;
  std::uint64_t count_ = 0;
  unsigned free_factor_ = 0;
};

}  // namespace faultline::kernel
