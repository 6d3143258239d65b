// SPDX-License-Identifier: Apache-2.0
//
// Page tables of an unmapped range are freed if no neighbouring mapping can use them.
//
// Stands for: free_pgtables(), free_pgd_range() … free_pte_range() (mm/memory.c,
// v4.15-6.18): a table goes if all that it maps lies between the end of the mapping below
// (floor) and the start of the mapping above (ceiling; 0 is the top).
#include <algorithm>

#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kFreePgtables{"free_pgtables", true};

// free_pgd_range(): is there a PTE table of `range` whose span lies wholly between the
// neighbours?
bool may_free_a_table(Range range, VirtAddr floor, VirtAddr ceiling,
                      std::uint64_t pmd_size) {
  const auto down = [&](VirtAddr at) { return at.v & ~(pmd_size - 1); };
  const std::uint64_t start = down(range.start);
  const std::uint64_t first = start < floor.v ? start + pmd_size : start;
  const std::uint64_t end = down(range.end - 1) + pmd_size;
  const std::uint64_t last = ceiling.v != 0 && end > ceiling.v ? end - pmd_size : end;
  return first < last;
}

}  // namespace

void PageTables::free_pgtables(Task& task, Range range, VirtAddr floor, VirtAddr ceiling,
                               bool flushed) {
  Scope scope(task, kFreePgtables);
  task.sync();
  if (!may_free_a_table(range, floor, ceiling, geometry_.pmd_size())) return;
  MmuGather tlb(task, *this);
  if (flushed) tlb.assume_flushed();
  free_tables_below(tlb, tree_.top(), range, floor, ceiling);
  tlb.flush();
}

// Frees what it may below `table`; true if anything went.
bool PageTables::free_tables_below(MmuGather& tlb, Table& table, Range range,
                                   VirtAddr floor, VirtAddr ceiling) {
  const LevelShape& shape = tree_.shape(table.level);
  const std::uint64_t from =
      (std::max(range.start, table.start) - table.start) >> shape.shift;
  const std::uint64_t table_bytes = shape.entries() << shape.shift;
  const std::uint64_t last = std::min(range.end.v - table.start.v, table_bytes) - 1;
  const std::uint64_t to = (last >> shape.shift) + 1;
  bool freed = false;
  for (std::uint64_t i = PageTableTree::next_index(table, from, to); i < to;
       i = PageTableTree::next_index(table, i + 1, to)) {
    if (!table.entry[i].is_table()) continue;
    Table& child = *PageTableTree::to_table(table.entry[i]);
    const VirtAddr end = child.start + shape.entry_bytes();
    if (child.level < tree_.pte_level())
      freed |= free_tables_below(tlb, child, range, floor, ceiling);
    if (child.start < floor || (ceiling.v != 0 && end > ceiling)) continue;
    FAULTLINE_CHECK_EQ(child.used, 0U);
    tlb.remove_table(tree_.detach(child), {child.start, end});
    freed = true;
  }
  return freed;
}

}  // namespace faultline::kernel
