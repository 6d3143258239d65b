// SPDX-License-Identifier: Apache-2.0
//
// The page-table part of mprotect.
//
// A private page never becomes writable by mprotect alone, except (6.0) an anonymous one
// that is dirty and the mm's own; otherwise the next write takes a fault that finds the
// page reusable.
//
// Stands for: change_protection() (mm/mprotect.c), change_huge_pmd() (mm/huge_memory.c),
// v4.15-6.18.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kChangeProtection{"change_protection", true};

// can_change_pte_writable(), can_change_pmd_writable().
bool can_become_writable(Kernel& kernel, Pte entry, bool huge) {
  const MprotectWritable rule = kernel.config().mprotect_writable;
  if (rule == MprotectWritable::kNo || !entry.maps_anon()) return false;
  if (rule == MprotectWritable::kBase && (huge || !entry.has(Pte::kDirty))) return false;
  return is_exclusive(kernel, entry.pfn());
}

Pte modified(Kernel& kernel, Pte entry, std::uint64_t flags, bool huge) {
  Pte now = entry.without(Pte::kUser | Pte::kWrite);
  if ((flags & kVmAccessFlags) != 0) now = now.with(Pte::kUser);
  if ((flags & VM_WRITE) == 0) return now;
  const bool write = (flags & VM_SHARED) != 0 || can_become_writable(kernel, entry, huge);
  return write ? now.with(Pte::kWrite) : now;
}

// pte_needs_flush(): x86 (5.19) and arm64 (6.13) don't flush if rights were only added.
bool elides_flush(const Kernel& kernel) {
  switch (kernel.profile().isa) {
    case arch::Isa::kX86_64:
      return kernel.version() >= 5019;
    case arch::Isa::kArm64:
      return kernel.version() >= 6013;
    default:
      return false;
  }
}

}  // namespace

struct PageTables::ProtChange {
  Task& task;
  std::uint64_t flags;
  bool changed = false;
  bool took_rights = false;

  void note(Pte before, Pte after) {
    changed = true;
    if ((before.raw() & ~after.raw() & (Pte::kUser | Pte::kWrite)) != 0) took_rights = true;
  }
};

void PageTables::change_protection(Task& task, Vma& vma, Range range,
                                   std::uint64_t new_flags) {
  static_cast<void>(vma);
  Scope scope(task, kChangeProtection);
  task.sync();
  const auto walked =
      static_cast<std::int64_t>(tree_.entries_in_existing_tables(range, tree_.pmd_level()));
  task.charge(costs_.pmd_walk * walked);
  ProtChange change{task, new_flags};
  VirtAddr at = tree_.next_in_use(range.start, range.end, tree_.pmd_level());
  while (at < range.end) {
    const VirtAddr end = std::min(range.end, pmd_range(at).end);
    change_pmd(change, {at, end});
    at = tree_.next_in_use(end, range.end, tree_.pmd_level());
  }
  if (change.changed && (change.took_rights || !elides_flush(kernel_)))
    flush_tlb_range(task, *this, range);
  if (change.took_rights) mm_.process().access_caches.forget();
}

void PageTables::change_pmd(ProtChange& change, Range range) {
  Table* pmd = tree_.find_pmd_table(range.start);
  if (pmd == nullptr) return;
  if (tree_.get(*pmd, range.start).is_leaf()) {
    Ptl lock(change.task, *this, pmd_lock_page(*pmd));
    const Pte entry = tree_.get(*pmd, range.start);
    if (entry.is_leaf() && range == pmd_range(range.start)) {
      const Pte now = modified(kernel_, entry, change.flags, true);
      tree_.set(*pmd, range.start, now);
      change.note(entry, now);
      change.task.charge(costs_.pmd_set);
      return;
    }
    if (entry.is_leaf()) split_huge_pmd_locked(change.task, *pmd, range.start);
  }
  change_pte_range(change, range);
}

void PageTables::change_pte_range(ProtChange& change, Range range) {
  Table* table = tree_.find_pte_table(range.start);
  if (table == nullptr || table->used == 0) return;
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  Ptl lock(change.task, *this, table->page);
  if (tree_.find_pte_table(range.start) != table) return;
  const std::uint64_t to = (range.end - table->start) >> shape.shift;
  std::int64_t count = 0;
  for (std::uint64_t i = PageTableTree::next_index(
           *table, (range.start - table->start) >> shape.shift, to);
       i < to; i = PageTableTree::next_index(*table, i + 1, to)) {
    const Pte entry = table->entry[i];
    if (!entry.present()) continue;
    table->entry[i] = modified(kernel_, entry, change.flags, false);
    change.note(entry, table->entry[i]);
    ++count;
  }
  change.task.charge(costs_.pte_set * count);
}

}  // namespace faultline::kernel
