// SPDX-License-Identifier: Apache-2.0
//
// The page-table part of fork: the child maps the parent's pages, both read-only, old on
// the child's side; the next write of either copies.  What a fault can bring back anyway
// isn't copied.
//
// Stands for: copy_page_range(), copy_pte_range() (mm/memory.c), copy_huge_pmd()
// (mm/huge_memory.c), v4.15-6.18.
#include <algorithm>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kCopyPageRange{"copy_page_range", true};

bool is_cow_mapping(const Vma& vma) {
  return (vma.vm_flags & (VM_SHARED | VM_MAYWRITE)) == VM_MAYWRITE;
}

}  // namespace

bool PageTables::copy_page_range(Task& task, PageTables& child, Vma& from, Vma& to) {
  // vma_needs_copy(): without an anon_vma there is nothing that a fault wouldn't fill in
  // the same way.
  if (!from.anon_vma &&
      (from.vm_flags & (VM_HUGETLB | VM_PFNMAP | VM_MIXEDMAP | VM_MAYBE_GUARD)) == 0)
    return true;
  static_cast<void>(to);
  if (from.hugetlb) return copy_hugetlb_page_range(task, *this, child, from);
  Scope scope(task, kCopyPageRange);
  task.sync();
  const Range range = from.range();
  const auto walked =
      static_cast<std::int64_t>(tree_.entries_in_existing_tables(range, tree_.pmd_level()));
  task.charge(costs_.pmd_walk * walked);
  if (!copy_upper_tables(task, child, range)) return false;
  VirtAddr at = tree_.next_in_use(range.start, range.end, tree_.pmd_level());
  while (at < range.end) {
    const VirtAddr end = std::min(range.end, pmd_range(at).end);
    Table* pmd = tree_.find_pmd_table(at);
    const bool copied = tree_.get(*pmd, at).is_leaf()
                            ? copy_huge_pmd(task, child, *pmd, at)
                            : copy_pte_range(task, child, {at, end}, is_cow_mapping(from));
    if (!copied) return false;
    at = tree_.next_in_use(end, range.end, tree_.pmd_level());
  }
  return true;
}

// copy_p4d_range() to copy_pmd_range(): an upper table has a counterpart, even if it is
// empty.
bool PageTables::copy_upper_tables(Task& task, PageTables& child, Range range) {
  for (unsigned level = 1; level <= tree_.pmd_level(); ++level) {
    const std::uint64_t extent = tree_.shape(level - 1).entry_bytes();
    VirtAddr at = tree_.next_in_use(range.start, range.end, level - 1);
    while (at < range.end) {
      if (child.alloc_tables_to(task, at, level) == nullptr) return false;
      const VirtAddr next{(at.v & ~(extent - 1)) + extent};
      at = tree_.next_in_use(next, range.end, level - 1);
    }
  }
  return true;
}

bool PageTables::copy_huge_pmd(Task& task, PageTables& child, Table& pmd, VirtAddr at) {
  Table* to = child.alloc_tables_to(task, at, tree_.pmd_level());
  if (to == nullptr) return false;
  TablePage* deposited = child.alloc_table(task, tree_.pte_level());
  if (deposited == nullptr) return false;
  Ptl child_lock(task, child, child.pmd_lock_page(*to));
  Ptl lock(task, *this, pmd_lock_page(pmd));
  const Pte entry = tree_.get(pmd, at);
  FAULTLINE_CHECK(entry.is_leaf());
  child.tree_.deposit(*to, at, deposited);
  task.charge(costs_.pmd_set);
  if (!entry.maps_anon()) {
    child.tree_.set(*to, at, entry);
    child.note_huge_zero_page();
    return true;
  }
  page_dup_rmap_pmd(kernel_, entry.pfn());
  child.rss_.add(task, RssKind::kAnon,
                 static_cast<std::int64_t>(geometry_.pages_per_pmd()));
  if (entry.has(Pte::kWrite)) mm_.process().access_caches.forget();
  tree_.set(pmd, at, entry.without(Pte::kWrite));
  child.tree_.set(*to, at, entry.without(Pte::kWrite | Pte::kYoung));
  return true;
}

bool PageTables::copy_pte_range(Task& task, PageTables& child, Range range, bool cow) {
  Table* from = tree_.find_pte_table(range.start);
  if (from == nullptr) return true;
  // An empty table gets a counterpart, too (pte_alloc_map_lock() comes before any entry).
  Table* to = child.alloc_tables_to(task, range.start, tree_.pte_level());
  if (to == nullptr) return false;
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  Ptl child_lock(task, child, to->page);
  Ptl lock(task, *this, from->page);
  std::int64_t anon = 0, file = 0, shmem = 0, count = 0;
  const std::uint64_t end = (range.end - from->start) >> shape.shift;
  for (std::uint64_t i = PageTableTree::next_index(
           *from, (range.start - from->start) >> shape.shift, end);
       i < end; i = PageTableTree::next_index(*from, i + 1, end)) {
    Pte& entry = from->entry[i];
    ++count;
    if (entry.maps_anon()) {
      page_dup_rmap_pte(kernel_, entry.pfn());
      ++anon;
    }
    if (entry.has(Pte::kSwap)) {
      kernel_.mm_shared().swap.duplicate(entry.pfn().v);
      ++child.mm_.swap_ents;
    }
    if (entry.maps_file()) page_add_file_rmap(kernel_, entry.pfn());
    if (entry.has(Pte::kFile))
      ++(entry.maps_file() && is_shmem_page(kernel_, entry.pfn()) ? shmem : file);
    if (cow && entry.has(Pte::kWrite)) {
      entry = entry.without(Pte::kWrite);
      mm_.process().access_caches.forget();
    }
    child.tree_.set_index(*to, i, entry.present() ? entry.without(Pte::kYoung) : entry);
  }
  task.charge(costs_.pte_set * count);
  if (anon != 0) child.rss_.add(task, RssKind::kAnon, anon);
  if (file != 0) child.rss_.add(task, RssKind::kFile, file);
  if (shmem != 0) child.rss_.add(task, RssKind::kShmem, shmem);
  return true;
}

}  // namespace faultline::kernel
