// SPDX-License-Identifier: Apache-2.0
//
// Unmapping a range of pages: munmap, MADV_DONTNEED, exit.
//
// A huge page inside the range goes whole; one that the range's edge cuts is split first
// and loses only the covered pieces, which frees nothing until its last piece goes.
// MADV_DONTNEED may free the PTE table that it leaves empty, so that the next fault can be
// a huge one again (PT_RECLAIM).
//
// Stands for: unmap_page_range(), zap_pmd_range(), zap_pte_range() (mm/memory.c),
// zap_huge_pmd() (mm/huge_memory.c), v4.15-6.18; try_to_free_pte() (mm/pt_reclaim.c,
// v6.14-6.18).
#include <algorithm>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"

namespace faultline::kernel {
namespace {

constexpr Centre kUnmapPageRange{"unmap_page_range", true};

struct ZapCounts {
  std::int64_t anon = 0, file = 0, shmem = 0, swapped = 0, cleared = 0;
};

// What an entry that isn't of an anonymous page stands for goes with it.
void zap_other(Pte entry, MmuGather& tlb, Kernel& kernel, ZapCounts& counts) {
  if (entry.has(Pte::kSwap)) {
    ++counts.swapped;
    kernel.mm_shared().swap.put(entry.pfn().v, tlb.task().cpu());
    return;
  }
  if (!entry.has(Pte::kFile)) return;
  if (!entry.maps_file()) {
    ++counts.file;
    return;
  }
  ++(is_shmem_page(kernel, entry.pfn()) ? counts.shmem : counts.file);
  page_remove_file_rmap(kernel, entry.pfn());
  tlb.remove_page(entry.pfn(), 1);
}

// Neighbouring pieces of one compound page go together: the end of the run that starts at
// `first`.
std::uint64_t end_of_run(const Table& table, std::uint64_t first, std::uint64_t to,
                         Kernel& kernel) {
  const Pfn pfn = table.entry[first].pfn();
  const Pfn head = compound_head(kernel, pfn);
  const std::uint64_t left =
      head.v + (std::uint64_t{1} << compound_order(kernel, head)) - pfn.v;
  const std::uint64_t end = std::min(to, first + left);
  const Pte* const run = &table.entry[first];
  // Differences are gathered over some entries at a time: a huge page has thousands.
  constexpr std::uint64_t kStride = 16;
  std::uint64_t length = 1;
  for (; first + length + kStride <= end; length += kStride) {
    std::uint64_t differ = 0;
    for (std::uint64_t i = length; i < length + kStride; ++i)
      differ |= run[i].differs_in_page(run[0].at_subpage(i));
    if (differ != 0) break;
  }
  while (first + length < end &&
         run[length].differs_in_page(run[0].at_subpage(length)) == 0)
    ++length;
  return first + length;
}

// The pages go that the entries from `first` on map: a run of base pages, or of pieces of
// one compound page.  Answers the end of the run; the entries stay.
std::uint64_t zap_anon(const Table& table, std::uint64_t first, std::uint64_t to,
                       MmuGather& tlb, Kernel& kernel) {
  const Pte* const entry = &table.entry[first];
  if (const std::uint64_t run =
          page_remove_rmap_run(kernel, entry, std::min(to - first, tlb.room()));
      run != 0) {
    for (std::uint64_t i = 0; i < run; ++i) tlb.remove_page(entry[i].pfn(), 1);
    return first + run;
  }
  const std::uint64_t end = end_of_run(table, first, to, kernel);
  const auto pages = static_cast<std::uint32_t>(end - first);
  page_remove_rmap_ptes(kernel, entry->pfn(), pages);
  tlb.remove_page(entry->pfn(), pages);
  return end;
}

// Clears entries [index, to) until the gather is full; answers where it stopped.
std::uint64_t zap_entries(PageTableTree& tree, Table& table, std::uint64_t index,
                          std::uint64_t to, MmuGather& tlb, Kernel& kernel,
                          ZapCounts& counts) {
  const bool keeps_guards = tlb.why() != ZapFor::kUnmap;
  for (index = PageTableTree::next_index(table, index, to); index < to && !tlb.full();) {
    const Pte entry = table.entry[index];
    if (keeps_guards && entry.has(Pte::kGuard)) {
      index = PageTableTree::next_index(table, index + 1, to);
      continue;
    }
    const std::uint64_t first = index;
    if (entry.maps_anon()) {
      index = zap_anon(table, first, to, tlb, kernel);
      PageTableTree::clear_run(table, first, index);
      const auto pages = static_cast<std::int64_t>(index - first);
      counts.cleared += pages;
      counts.anon += pages;
    } else {
      tree.set_index(table, index++, Pte{});
      ++counts.cleared;
      zap_other(entry, tlb, kernel, counts);
    }
    index = PageTableTree::next_index(table, index, to);
  }
  return index;
}

}  // namespace

// Charges the walk over the PMD entries of `range`; answers where the first one in use
// begins, or the end.  Most ranges lie under one entry.
VirtAddr PageTables::walk_pmds(Task& task, Range range) const {
  if (range.end <= pmd_range(range.start).end) {
    const Table* const pmd = tree_.find_pmd_table(range.start);
    if (pmd == nullptr) return range.end;
    task.charge(costs_.pmd_walk);
    return tree_.get(*pmd, range.start).none() ? range.end : range.start;
  }
  const auto walked =
      static_cast<std::int64_t>(tree_.entries_in_existing_tables(range, tree_.pmd_level()));
  task.charge(costs_.pmd_walk * walked);
  return tree_.next_in_use(range.start, range.end, tree_.pmd_level());
}

bool PageTables::zap_page_range(Task& task, Vma& vma, Range range, ZapFor why) {
  if (vma.hugetlb) {
    unmap_hugepage_range(task, *this, vma, range);
    return true;
  }
  const bool reclaim = why == ZapFor::kDontneed && kernel_.config().pt_reclaim &&
                       kernel_.profile().isa == arch::Isa::kX86_64;
  Scope scope(task, kUnmapPageRange);
  task.sync();
  kernel_.mm_shared().page_locks.drain(task);
  kernel_.mm_shared().lru.lru_add_drain(task.cpu());
  VirtAddr at = walk_pmds(task, range);
  if (at == range.end) return false;
  rss_.update_hiwater();
  if ((vma.vm_flags & VM_LOCKED) != 0) mlock_pages(range, false);
  MmuGather tlb(task, *this, why);
  while (at < range.end) {
    const VirtAddr end = std::min(range.end, pmd_range(at).end);
    zap_pmd(tlb, {at, end});
    if (reclaim && end - at == geometry_.pmd_size()) try_to_free_pte(tlb, at);
    at = end == range.end ? end : tree_.next_in_use(end, range.end, tree_.pmd_level());
  }
  tlb.flush();
  return tlb.has_flushed();
}

// Both locks of an empty table are at hand at once, or the table stays.
void PageTables::try_to_free_pte(MmuGather& tlb, VirtAddr at) {
  Table* const pmd = tree_.find_pmd_table(at);
  if (pmd == nullptr || !tree_.get(*pmd, at).is_table()) return;
  Ptl lock(tlb.task(), *this, pmd_lock_page(*pmd));
  Table* const table = tree_.find_pte_table(at);
  if (table == nullptr || table->used != 0) return;
  tlb.remove_table(tree_.detach(*table), pmd_range(at));
}

// zap_pmd_range(), one entry.
void PageTables::zap_pmd(MmuGather& tlb, Range range) {
  Table* pmd = tree_.find_pmd_table(range.start);
  if (pmd == nullptr) return;
  if (tree_.get(*pmd, range.start).is_leaf() && zap_huge_pmd(tlb, *pmd, range)) return;
  zap_pte_range(tlb, range);
}

// zap_huge_pmd(), or __split_huge_pmd() if the range covers only a part: then false.
bool PageTables::zap_huge_pmd(MmuGather& tlb, Table& pmd, Range range) {
  Task& task = tlb.task();
  Ptl lock(task, *this, pmd_lock_page(pmd));
  const Pte entry = tree_.get(pmd, range.start);
  if (!entry.is_leaf()) return false;
  if (range != pmd_range(range.start)) {
    split_huge_pmd_locked(task, pmd, range.start);
    return false;
  }
  tree_.set(pmd, range.start, Pte{});
  TablePage* deposited = tree_.withdraw(pmd, range.start);
  mm_.process().access_caches.forget();
  task.charge(costs_.pmd_set);
  if (entry.maps_anon()) {
    page_remove_rmap_pmd(kernel_, entry.pfn());
    rss_.add(task, RssKind::kAnon, -static_cast<std::int64_t>(geometry_.pages_per_pmd()));
    tlb.remove_page(entry.pfn(), 1);
  }
  tlb.unmapped(range, true);
  lock.unlock();
  free_table(task, deposited);
  if (tlb.full()) tlb.flush();
  return true;
}

void PageTables::zap_pte_range(MmuGather& tlb, Range range) {
  Task& task = tlb.task();
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  VirtAddr at = range.start;
  while (at < range.end) {
    Table* table = tree_.find_pte_table(at);
    if (table == nullptr || table->used == 0) return;
    Ptl lock(task, *this, table->page);
    if (tree_.find_pte_table(at) != table) continue;  // freed or collapsed while we waited
    ZapCounts counts;
    const std::uint64_t to = ((range.end - table->start) >> shape.shift);
    const std::uint64_t stopped = zap_entries(
        tree_, *table, (at - table->start) >> shape.shift, to, tlb, kernel_, counts);
    const VirtAddr from = at;
    at = table->start + (stopped << shape.shift);
    if (counts.cleared == 0) return;
    mm_.process().access_caches.forget();
    tlb.unmapped({from, at});
    task.charge(costs_.pte_clear * counts.cleared);
    rss_.sync(task);  // add_mm_rss_vec()
    if (counts.anon != 0) rss_.add(task, RssKind::kAnon, -counts.anon);
    if (counts.file != 0) rss_.add(task, RssKind::kFile, -counts.file);
    mm_.swap_ents -= static_cast<std::uint64_t>(counts.swapped);
    if (counts.shmem != 0) rss_.add(task, RssKind::kShmem, -counts.shmem);
    lock.unlock();
    if (tlb.full()) tlb.flush();
  }
}

}  // namespace faultline::kernel
