// SPDX-License-Identifier: Apache-2.0
//
// Unmapping in batches: entries are cleared first, then TLBs are flushed, then pages and
// tables are freed, so that nobody can reach a page that has a new owner.
//
// Stands for: struct mmu_gather (include/asm-generic/tlb.h, mm/mmu_gather.c, v4.15-6.18): a
// batch holds (PAGE_SIZE - 16) / 8 page pointers, all batches together at most about
// 10,000.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/page_tables.h"

namespace faultline::kernel {

// Flushes what other CPUs (and this one) may cache of `range`: IPIs to the CPUs that run
// the mm, or one broadcast, by machine; charged to the task. `stride` is the size of the
// entries that changed; 0: base pages.  Stands for: flush_tlb_mm_range() (x86),
// __flush_tlb_range() (arm64), radix__flush_tlb_range() (POWER). Model: one cost whatever
// the range's length; what receivers of an IPI lose is not booked.
void flush_tlb_range(Task& task, PageTables& pages, Range range, std::uint64_t stride = 0);

class MmuGather {
 public:
  MmuGather(Task& task, PageTables& pages, ZapFor why = ZapFor::kUnmap);
  ~MmuGather();
  MmuGather(const MmuGather&) = delete;
  MmuGather& operator=(const MmuGather&) = delete;

  // Entries of `range` were cleared: a flush is due even if no page goes with them.
  void unmapped(Range range, bool huge = false) {
    flush_due_ = true;
    extend(range, huge);
  }
  // `refs` references of a page (or compound page) go after the flush; counts as that many
  // entries.
  void remove_page(Pfn pfn, std::uint32_t refs) {
    if (bundled_ < kBundle)
      bundle_[bundled_++] = {pfn, refs};
    else
      batch_more({pfn, refs});
    gathered_ += refs;
    flush_due_ = true;
  }
  // A table that mapped `range`.
  void remove_table(TablePage* page, Range range) {
    tables_to_free_.push_back(page);
    extend(range, false);
  }
  [[nodiscard]] bool full() const { return gathered_ >= limit_; }
  // How many references more until it is full.
  [[nodiscard]] std::uint64_t room() const { return limit_ - std::min(gathered_, limit_); }

  // tlb_flush_mmu(): flushes, then frees.
  void flush();
  [[nodiscard]] bool has_flushed() const { return has_flushed_; }
  // The flush for what was unmapped was made by a gather before this one.
  void assume_flushed() { has_flushed_ = true; }

  [[nodiscard]] ZapFor why() const { return why_; }
  [[nodiscard]] Task& task() const { return task_; }

 private:
  using Gathered = MmShared::Gathered;
  // __tlb_adjust_range()
  void extend(Range range, bool huge) {
    only_huge_ = huge && (only_huge_ || range_.empty());
    if (range_.empty()) range_ = range;
    range_.start = std::min(range_.start, range.start);
    range_.end = std::max(range_.end, range.end);
  }
  void free_pages();
  struct Freed;
  void free_gathered(const Gathered* gone, std::uint64_t count, Freed& freed);
  void pay_for(Freed& freed);
  void batch_more(Gathered page);

  static constexpr unsigned kBundle = MmShared::kGatherBundle;
  Task& task_;
  PageTables& pt_;
  ZapFor why_;
  // Most unmappings need no more than the bundle; only the others take a buffer.
  std::array<Gathered, kBundle> bundle_;
  unsigned bundled_ = 0;
  std::unique_ptr<std::vector<Gathered>> more_pages_;
  std::vector<TablePage*> tables_to_free_;
  std::uint64_t gathered_ = 0;
  std::uint64_t limit_;
  unsigned release_batch_;
  Range range_;             // since the last flush: tlb->start, tlb->end
  bool only_huge_ = false;  // tlb->cleared_pmds and nothing else
  bool flush_due_ = false;
  bool has_flushed_ = false;
};

}  // namespace faultline::kernel
