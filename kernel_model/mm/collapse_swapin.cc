// SPDX-License-Identifier: Apache-2.0
//
// Before a collapse: the range's swapped pages come back.
//
// Stands for: __collapse_huge_page_swapin() (mm/khugepaged.c, v4.8-6.18).
#include "kernel_model/mm/collapse.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/swap.h"

namespace faultline::kernel {
namespace {

constexpr Centre kSwapin{"__collapse_huge_page_swapin", true};

// Reads what the fault waits for, without mmap_lock.  From 6.0 on that ends the attempt:
// the next one finds the page in the swap cache.  Before, the lock is taken again and the
// range looked at once more; the entry itself is left for the next attempt.
ScanResult read_page(Fault& fault, Range range, bool& locked) {
  fault.mm.mmap_read_unlock(fault.task);
  locked = false;
  if (wait_for_io(fault.task, fault.kernel, fault.io) == FaultResult::kOom)
    return ScanResult::kFail;
  if (fault.kernel.version() >= 6000) return ScanResult::kPageLock;
  fault.mm.mmap_read_lock(fault.task);
  locked = true;
  const Vma* vma = fault.mm.vma_at(range.start);
  if (vma == nullptr) return ScanResult::kVmaNull;
  return vma == &fault.vma && vma->range().contains(range) &&
                 collapse_allowed(fault.mm, *vma)
             ? ScanResult::kSucceed
             : ScanResult::kVmaCheck;
}

}  // namespace

ScanResult collapse_swapin(Task& task, Mm& mm, Range range, bool& locked) {
  const Scope scope(task, kSwapin);
  PageTables& pages = mm.pages();
  Vma& vma = *mm.vma_at(range.start);
  const std::uint64_t page = pages.geometry().page_size();
  for (VirtAddr at = range.start; at < range.end; at = at + page) {
    Table* table = pages.tree().find_pte_table(at);
    if (table == nullptr) return ScanResult::kPmdNull;
    const Pte entry = pages.tree().get(*table, at);
    // do_swap_page() answers a guard mark with SIGSEGV.
    if (entry.has(Pte::kGuard)) return ScanResult::kFail;
    if (!entry.has(Pte::kSwap)) continue;
    Fault fault{task, mm.kernel(), mm, pages, vma, at, Access::kRead, false};
    if (do_swap_page(fault, *table, entry) != FaultResult::kIo) continue;
    if (const ScanResult read = read_page(fault, range, locked);
        read != ScanResult::kSucceed)
      return read;
  }
  mm.kernel().mm_shared().lru.lru_add_drain_all();
  return ScanResult::kSucceed;
}

}  // namespace faultline::kernel
