// SPDX-License-Identifier: Apache-2.0
//
// Guard pages inside a mapping: MADV_GUARD_INSTALL puts marks into page-table entries that
// make every access fail, MADV_GUARD_REMOVE takes them out.  They cost no VMA.
//
// Stands for: madvise_guard_install(), madvise_guard_remove(), guard_install_walk_ops
// (mm/madvise.c, v6.13-6.18).
#include <algorithm>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/madvise.h"
#include "kernel_model/mm/mm.h"

namespace faultline::kernel {
namespace {

constexpr Centre kGuardInstall{"madvise_guard_install", true};
constexpr Centre kGuardRemove{"madvise_guard_remove", true};

bool is_valid_guard_vma(const Kernel& kernel, const Vma& vma, bool allow_locked) {
  const std::uint64_t disallowed =
      kVmSpecial | VM_HUGETLB | std::uint64_t{allow_locked ? VM_NONE : VM_LOCKED};
  if ((vma.vm_flags & disallowed) != 0) return false;
  return kernel.version() >= 6015 || (vma.anonymous && (vma.vm_flags & VM_MAYWRITE) != 0);
}

}  // namespace

// One table's part of a walk; stops at the first page in the way.
PageTables::GuardStep PageTables::guard_install_pte_range(Task& task, Range range) {
  if (maps_huge(range.start)) return GuardStep::kInTheWay;
  Table* table = alloc_tables_to(task, range.start, tree_.pte_level());
  if (table == nullptr)
    return maps_huge(range.start) ? GuardStep::kInTheWay : GuardStep::kNoMemory;
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  Ptl lock(task, *this, table->page);
  const std::uint64_t to = (range.end - table->start) >> shape.shift;
  std::uint64_t i = (range.start - table->start) >> shape.shift;
  std::int64_t set = 0;
  for (; i < to; ++i) {
    if (table->entry[i].has(Pte::kGuard)) continue;
    if (!table->entry[i].none()) break;
    tree_.set_index(*table, i, Pte::leaf(Pfn{0}, Pte::kGuard));
    ++set;
  }
  task.charge(costs_.pte_set * set);
  return i == to ? GuardStep::kSet : GuardStep::kInTheWay;
}

bool PageTables::guard_install(Task& task, Vma& vma, Range range) {
  // Marks first; where pages are in the way, all of the range is cleared, and again.
  for (VirtAddr at = range.start; at < range.end;) {
    const VirtAddr end = std::min(pmd_range(at).end, range.end);
    const GuardStep step = guard_install_pte_range(task, {at, end});
    if (step == GuardStep::kNoMemory) return false;
    if (step == GuardStep::kInTheWay) zap_page_range(task, vma, range, ZapFor::kGuard);
    at = step == GuardStep::kInTheWay ? range.start : end;
  }
  return true;
}

void PageTables::guard_remove(Task& task, Range range) {
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  for (VirtAddr at = tree_.next_in_use(range.start, range.end, tree_.pmd_level());
       at < range.end;
       at = tree_.next_in_use(pmd_range(at).end, range.end, tree_.pmd_level())) {
    Table* table = tree_.find_pte_table(at);
    if (table == nullptr) continue;
    Ptl lock(task, *this, table->page);
    const std::uint64_t to =
        (std::min(range.end, pmd_range(at).end) - table->start) >> shape.shift;
    std::int64_t cleared = 0;
    for (std::uint64_t i =
             PageTableTree::next_index(*table, (at - table->start) >> shape.shift, to);
         i < to; i = PageTableTree::next_index(*table, i + 1, to)) {
      if (!table->entry[i].has(Pte::kGuard)) continue;
      tree_.set_index(*table, i, Pte{});
      ++cleared;
    }
    task.charge(costs_.pte_set * cleared);
  }
}

Errno madvise_guard_install(Task& task, Mm& mm, Vma& vma, Range part) {
  if (!is_valid_guard_vma(mm.kernel(), vma, false)) return Errno::kEINVAL;
  const Scope scope(task, kGuardInstall);
  // With either a fork copies the tables, and so the marks.
  vma.vm_flags |= VM_MAYBE_GUARD;
  Fault context{task, mm.kernel(), mm, mm.pages(), vma, part.start, Access::kWrite, false};
  if (anon_vma_prepare(context) != FaultResult::kDone) return Errno::kENOMEM;
  mm.process().discarded(part);
  return mm.pages().guard_install(task, vma, part) ? Errno::kOk : Errno::kENOMEM;
}

Errno madvise_guard_remove(Task& task, Mm& mm, Vma& vma, Range part) {
  if (!is_valid_guard_vma(mm.kernel(), vma, true)) return Errno::kEINVAL;
  const Scope scope(task, kGuardRemove);
  mm.pages().guard_remove(task, part);
  return Errno::kOk;
}

}  // namespace faultline::kernel
