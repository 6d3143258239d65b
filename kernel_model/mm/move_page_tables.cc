// SPDX-License-Identifier: Apache-2.0
//
// The page-table part of mremap: pages keep their frames and change their addresses.
//
// Huge pages and whole PTE tables move in one step if both addresses are PMD-aligned;
// otherwise huge pages are split and entries move one by one.
//
// Stands for: move_page_tables(), move_ptes(), move_normal_pmd() (mm/mremap.c),
// move_huge_pmd() (mm/huge_memory.c), v4.15-6.18.  Model: no PUD-wise moves
// (HAVE_MOVE_PUD).
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kMovePageTables{"move_page_tables", true};

// CONFIG_HAVE_MOVE_PMD, 5.0 and later.
bool moves_whole_tables(const Kernel& kernel) {
  const arch::Isa isa = kernel.profile().isa;
  return kernel.version() >= 5000 &&
         (isa == arch::Isa::kX86_64 || isa == arch::Isa::kArm64 ||
          isa == arch::Isa::kRiscv64);
}

}  // namespace

void PageTables::move_page_tables(Task& task, Vma& from, VirtAddr old_start, Vma& to,
                                  VirtAddr new_start, std::uint64_t bytes) {
  static_cast<void>(from);
  static_cast<void>(to);
  Scope scope(task, kMovePageTables);
  task.sync();
  const VirtAddr old_end = old_start + bytes;
  bool moved = false;
  VirtAddr at = tree_.next_in_use(old_start, old_end, tree_.pmd_level());
  while (at < old_end) {
    const VirtAddr new_at = new_start + (at - old_start);
    const std::uint64_t extent =
        std::min({pmd_range(at).end - at, pmd_range(new_at).end - new_at, old_end - at});
    if (extent < geometry_.pmd_size() || !move_pmd_entry(task, at, new_at)) {
      split_huge_pmd(task, at);
      move_ptes(task, at, new_at, extent);
    }
    moved = true;
    at = tree_.next_in_use(at + extent, old_end, tree_.pmd_level());
  }
  if (!moved) return;
  flush_tlb_range(task, *this, {old_start, old_end});
  mm_.process().access_caches.forget();
}

// move_huge_pmd(), move_normal_pmd(): both addresses are PMD-aligned.  False: entry by
// entry.
bool PageTables::move_pmd_entry(Task& task, VirtAddr old_at, VirtAddr new_at) {
  Table* to = alloc_tables_to(task, new_at, tree_.pmd_level());
  FAULTLINE_CHECK(to != nullptr);
  Table* from = tree_.find_pmd_table(old_at);
  Ptl old_lock(task, *this, pmd_lock_page(*from));
  if (!tree_.get(*to, new_at).none()) return false;
  if (!tree_.get(*from, old_at).is_leaf() && !moves_whole_tables(kernel_)) return false;
  // Both locks, if they differ: the kernel nests the new one (SINGLE_DEPTH_NESTING).
  if (pmd_lock_page(*to) == pmd_lock_page(*from)) {
    tree_.move_pmd(*from, old_at, *to, new_at);
  } else {
    Ptl new_lock(task, *this, pmd_lock_page(*to));
    tree_.move_pmd(*from, old_at, *to, new_at);
  }
  task.charge(costs_.pmd_set);
  return true;
}

// move_ptes(): all within one table on each side.
void PageTables::move_ptes(Task& task, VirtAddr old_at, VirtAddr new_at,
                           std::uint64_t bytes) {
  Table* from = tree_.find_pte_table(old_at);
  if (from == nullptr || from->used == 0) return;
  Table* to = alloc_tables_to(task, new_at, tree_.pte_level());
  FAULTLINE_CHECK(to != nullptr);
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  const auto move = [&] {
    const std::uint64_t first = shape.index(old_at);
    const std::uint64_t end = first + (bytes >> shape.shift);
    const std::uint64_t target = shape.index(new_at);
    std::int64_t count = 0;
    for (std::uint64_t i = PageTableTree::next_index(*from, first, end); i < end;
         i = PageTableTree::next_index(*from, i + 1, end)) {
      tree_.set_index(*to, target + (i - first), from->entry[i]);
      tree_.set_index(*from, i, Pte{});
      ++count;
    }
    task.charge(costs_.pte_set * count);
  };
  Ptl old_lock(task, *this, from->page);
  if (to->page == from->page) return move();
  Ptl new_lock(task, *this, to->page);
  move();
}

}  // namespace faultline::kernel
