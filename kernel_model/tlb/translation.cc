// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/tlb/translation.h"

#include <bit>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mthp.h"

namespace faultline::kernel {
namespace {

unsigned log2_of(std::uint64_t bytes) {
  return static_cast<unsigned>(std::countr_zero(bytes));
}

}  // namespace

Translation translation_of(PageTables& pages, VirtAddr at) {
  PageTableTree& tree = pages.tree();
  const unsigned level = pages.maps_huge(at) ? tree.pmd_level() : tree.pte_level();
  if (tree.leaf_at(at).has(Pte::kHugetlb)) {
    const Vma* const vma = pages.mm().vma_at(at);
    if (vma != nullptr && vma->hugetlb) return {log2_of(vma->hugetlb->pool.size), level};
  }
  return {log2_of(tlb_entry_range(pages, at).bytes()), level};
}

bool coalesces(PageTables& pages, VirtAddr at, unsigned count) {
  const Table* const table = pages.tree().find_pte_table(at);
  if (table == nullptr) return false;
  const std::uint64_t index = pages.tree().shape(table->level).index(at) & ~(count - 1ULL);
  const Pte* const group = &table->entry[index];
  if (!group->present() || group->pfn().v % count != 0) return false;
  for (unsigned i = 1; i < count; ++i)
    if (group[i].raw() != group->at_subpage(i).raw()) return false;
  return true;
}

unsigned deepest_level(PageTables& pages, VirtAddr at) {
  unsigned level = pages.tree().pte_level();
  while (level > 0 && pages.tree().find(at, level) == nullptr) --level;
  return level;
}

}  // namespace faultline::kernel
