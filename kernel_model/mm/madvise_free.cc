// SPDX-License-Identifier: Apache-2.0
//
// MADV_FREE: pages stay mapped and resident, but clean and on the list of pages that
// reclaim may drop; a write before that makes them ordinary again.
//
// Stands for: madvise_free_single_vma(), madvise_free_pte_range() (mm/madvise.c),
// madvise_free_huge_pmd() (mm/huge_memory.c), v4.15-6.18.
#include <algorithm>

#include "kernel_model/mm/folio.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kMadviseFree{"madvise_free_single_vma", true};

Pte clean_and_old(Pte entry) {
  return entry.without(Pte::kDirty | Pte::kYoung);
}
bool dirty_or_young(Pte entry) {
  return entry.has(Pte::kDirty) || entry.has(Pte::kYoung);
}

// 6.10: a whole huge page that PTEs map is handled in one go, and what can't be split is
// passed over; before, the walk ended there.
constexpr unsigned kWholeFolios = 6010;

}  // namespace

void PageTables::madvise_free(Task& task, Range range) {
  Scope scope(task, kMadviseFree);
  task.sync();
  kernel_.mm_shared().page_locks.drain(task);
  kernel_.mm_shared().lru.lru_add_drain(task.cpu());
  const auto walked =
      static_cast<std::int64_t>(tree_.entries_in_existing_tables(range, tree_.pmd_level()));
  task.charge(costs_.pmd_walk * walked);
  bool cleaned = false;
  VirtAddr at = tree_.next_in_use(range.start, range.end, tree_.pmd_level());
  while (at < range.end) {
    const VirtAddr end = std::min(range.end, pmd_range(at).end);
    if (maps_huge(at)) cleaned |= madvise_free_huge_pmd(task, {at, end});
    if (!maps_huge(at)) cleaned |= madvise_free_pte_range(task, {at, end});
    at = tree_.next_in_use(end, range.end, tree_.pmd_level());
  }
  if (!cleaned) return;
  flush_tlb_range(task, *this, range);
  mm_.process()
      .access_caches.forget();  // the next write must be seen to make the page dirty
}

// A part of a huge page: the page itself is split, at once, if it is nobody else's.  True
// if an entry was made clean.
bool PageTables::madvise_free_huge_pmd(Task& task, Range range) {
  Table& pmd = *tree_.find_pmd_table(range.start);
  Ptl lock(task, *this, pmd_lock_page(pmd));
  const Pte entry = tree_.get(pmd, range.start);
  if (!entry.is_leaf() || !entry.maps_anon()) return false;
  if (folio_maybe_mapped_shared(kernel_, entry.pfn())) return false;
  if (range != pmd_range(range.start)) {
    lock.unlock();
    split_huge_page(task, kernel_, entry.pfn());
    return false;
  }
  kernel_.phys().page(entry.pfn()).flags &= static_cast<std::uint16_t>(~Page::kDirty);
  const bool changed = dirty_or_young(entry);
  tree_.set(pmd, range.start, clean_and_old(entry));
  task.charge(costs_.pmd_set);
  kernel_.mm_shared().lru.mark_page_lazyfree(entry.pfn(), task.cpu());
  return changed;
}

bool PageTables::madvise_free_pte_range(Task& task, Range range) {
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  bool cleaned = false;
  VirtAddr at = range.start;
  while (at < range.end) {
    Table* table = tree_.find_pte_table(at);
    if (table == nullptr || table->used == 0) return cleaned;
    Ptl lock(task, *this, table->page);
    if (tree_.find_pte_table(at) != table) continue;
    const std::uint64_t to = (range.end - table->start) >> shape.shift;
    std::uint64_t i =
        PageTableTree::next_index(*table, (at - table->start) >> shape.shift, to);
    std::int64_t count = 0, dropped = 0;
    for (; i < to; i = PageTableTree::next_index(*table, i + 1, to)) {
      const FreeStep step = madvise_free_pte(task, *table, i, to);
      if (step == FreeStep::kSplitFirst) break;
      if (step == FreeStep::kStop) i = to - 1;
      if (step == FreeStep::kCleaned) ++count;
      if (step == FreeStep::kDropped) ++dropped;
    }
    cleaned |= count > 0;
    PageLocks& locks = kernel_.mm_shared().page_locks;
    task.charge((costs_.pte_set + locks.lru_move_page()) * count);
    task.charge(costs_.pte_clear * dropped);
    locks.moved(task, task.node(), static_cast<std::uint64_t>(count),
                kernel_.config().lru_batch);
    if (i >= to) return cleaned;
    const Pfn head = compound_head(kernel_, table->entry[i].pfn());
    const std::uint64_t batch = folio_pte_batch(kernel_, *table, i, to);
    at = table->start + (i << shape.shift);
    lock.unlock();
    if (split_huge_page(task, kernel_, head)) continue;
    if (kernel_.version() < kWholeFolios) return cleaned;
    at = at + (batch << shape.shift);  // it stays as it is
  }
  return cleaned;
}

// One entry, under the table's lock; or a whole compound page's.  What is swapped out is in
// no TLB and on no list.
PageTables::FreeStep PageTables::madvise_free_pte(Task& task, Table& table,
                                                  std::uint64_t& i, std::uint64_t to) {
  const Pte entry = table.entry[i];
  if (entry.has(Pte::kSwap)) {  // free_swap_and_cache()
    if (!kernel_.config().madv_free_drops_swapped) return FreeStep::kSkipped;
    mm_.process().discarded(
        page_range(table.start + (i << tree_.shape(table.level).shift)));
    kernel_.mm_shared().swap.put(entry.pfn().v, task.cpu());
    tree_.set_index(table, i, Pte{});
    --mm_.swap_ents;
    return FreeStep::kDropped;
  }
  if (entry.has(Pte::kGuard) || !entry.maps_anon()) return FreeStep::kSkipped;
  const Pfn head = compound_head(kernel_, entry.pfn());
  const std::uint64_t pages = std::uint64_t{1} << compound_order(kernel_, head);
  std::uint64_t batch = 1;
  if (pages > 1) {
    const bool shared = folio_maybe_mapped_shared(kernel_, head);
    if (kernel_.version() < kWholeFolios)
      return shared ? FreeStep::kStop : FreeStep::kSplitFirst;
    batch = folio_pte_batch(kernel_, table, i, to);
    if (batch < pages && !shared) return FreeStep::kSplitFirst;
  }
  const std::uint64_t first = i;
  i += batch - 1;
  if (batch < pages) return FreeStep::kSkipped;
  Page& page = kernel_.phys().page(head);
  if ((page.flags & Page::kDirty) != 0) {
    if (total_mapcount(kernel_, head) != static_cast<std::int64_t>(pages))
      return FreeStep::kSkipped;
    page.flags &= static_cast<std::uint16_t>(~Page::kDirty);
  }
  bool changed = false;
  for (std::uint64_t k = first; k <= i; ++k) {
    changed |= dirty_or_young(table.entry[k]);
    table.entry[k] = clean_and_old(table.entry[k]);
  }
  kernel_.mm_shared().lru.mark_page_lazyfree(head, task.cpu());
  return changed ? FreeStep::kCleaned : FreeStep::kSkipped;
}

}  // namespace faultline::kernel
