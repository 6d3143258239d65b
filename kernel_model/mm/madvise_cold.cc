// SPDX-License-Identifier: Apache-2.0
//
// MADV_COLD and MADV_PAGEOUT: see madvise_cold.h.
#include "kernel_model/mm/madvise_cold.h"

#include <algorithm>
#include <vector>

#include "kernel_model/mm/folio.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {

namespace {

constexpr Centre kColdOrPageout{"madvise_cold_or_pageout_pte_range", true};
constexpr Centre kReclaimPages{"reclaim_pages", true};

// 6.10: a huge page that PTEs map whole is handled in one go, and what can't be split is
// passed over; before, the walk ended there.
constexpr unsigned kWholeFolios = 6010;

class ColdWalk {
 public:
  ColdWalk(Task& task, Mm& mm, Reclaim reclaim)
      : task_(task),
        mm_(mm),
        pages_(mm.pages()),
        tree_(mm.pages().tree()),
        kernel_(mm.kernel()),
        reclaim_(reclaim),
        tlb_(task, mm.pages()) {}

  void walk(Range range);

 private:
  bool huge_pmd(Range range);
  bool pageout_huge(VirtAddr at, Pfn head);
  void pte_range(Range range);
  enum class Step : std::uint8_t { kNext, kSplitFirst, kStop };
  Step pte(Table& table, std::uint64_t& i, std::uint64_t to);
  Step compound_pte(Table& table, std::uint64_t& i, std::uint64_t to);
  void age(Table& table, std::uint64_t index);
  void pageout_base(Table& table, std::uint64_t index);
  void drop_run(Table& table, std::uint64_t from, std::uint64_t to);

  [[nodiscard]] VirtAddr address(const Table& table, std::uint64_t index) const {
    return table.start + (index << tree_.shape(table.level).shift);
  }
  // Locked by somebody: folio_isolate_lru() has nothing for the caller.
  [[nodiscard]] bool unevictable(Pfn head) {
    return (page(head).flags & Page::kUnevictable) != 0;
  }
  [[nodiscard]] Page& page(Pfn pfn) { return kernel_.phys().page(pfn); }

  Task& task_;
  Mm& mm_;
  PageTables& pages_;
  PageTableTree& tree_;
  Kernel& kernel_;
  const Reclaim reclaim_;
  MmuGather tlb_;
  // Single pages that are to be swapped out when the walk is over.
  std::vector<Pfn> to_swap_;
  [[nodiscard]] bool can_swap() const { return kernel_.mm_shared().swap.free_pages() > 0; }
  Pfn to_split_;  // what kSplitFirst is about
};

void ColdWalk::walk(Range range) {
  const unsigned pmd_level = tree_.pmd_level();
  const auto walked =
      static_cast<std::int64_t>(tree_.entries_in_existing_tables(range, pmd_level));
  task_.charge(pages_.costs().pmd_walk * walked);
  VirtAddr at = tree_.next_in_use(range.start, range.end, pmd_level);
  while (at < range.end) {
    const VirtAddr end = std::min(range.end, pages_.pmd_range(at).end);
    if (!pages_.maps_huge(at) || !huge_pmd({at, end})) pte_range({at, end});
    at = tree_.next_in_use(end, range.end, pmd_level);
  }
  tlb_.flush();
  if (!to_swap_.empty()) kernel_.mm_shared().vmscan().reclaim_pages(task_, to_swap_);
}

// True if the huge page is done with; false if its pieces are to be looked at.
bool ColdWalk::huge_pmd(Range range) {
  Table& pmd = *tree_.find_pmd_table(range.start);
  Ptl lock(task_, pages_, pages_.pmd_lock_page(pmd));
  const Pte entry = tree_.get(pmd, range.start);
  if (!entry.is_leaf()) return false;
  if (!entry.maps_anon() || folio_maybe_mapped_shared(kernel_, entry.pfn())) return true;
  if (range != pages_.pmd_range(range.start)) {
    lock.unlock();
    return !split_huge_page(task_, kernel_, entry.pfn());
  }
  if (entry.has(Pte::kYoung)) {
    tree_.set(pmd, range.start, entry.without(Pte::kYoung));
    task_.charge(pages_.costs().pmd_set);
    mm_.process().access_caches.forget();
    tlb_.unmapped(range, true);
  }
  lock.unlock();
  if (reclaim_ != Reclaim::kNow) return true;
  return !pageout_huge(range.start, entry.pfn()) || !can_swap();
}

// shrink_folio_list() of one huge page.  True if it is in pieces now, to be swapped out if
// there is room.
bool ColdWalk::pageout_huge(VirtAddr at, Pfn head) {
  const Scope scope(task_, kReclaimPages);
  task_.sync();
  if (!pages_.maps_huge(at)) return true;  // somebody was faster
  if (unevictable(head)) return false;
  if (!is_lazyfree(kernel_, head)) return split_huge_page(task_, kernel_, head);
  pages_.split_huge_pmd(task_, at);  // TTU_SPLIT_HUGE_PMD
  Table* const table = tree_.find_pte_table(at);
  if (table == nullptr) return false;
  Ptl lock(task_, pages_, table->page);
  if ((page(head).flags & Page::kDirty) != 0) {  // the entry's bit is the page's now
    page(head).flags = static_cast<std::uint16_t>((page(head).flags & ~Page::kLazyfree) |
                                                  Page::kSwapbacked);
    return false;
  }
  drop_run(*table, 0, tree_.shape(tree_.pte_level()).entries());
  return false;
}

void ColdWalk::pte_range(Range range) {
  const LevelShape& shape = tree_.shape(tree_.pte_level());
  VirtAddr at = range.start;
  while (at < range.end) {
    Table* const table = tree_.find_pte_table(at);
    if (table == nullptr || table->used == 0) return;
    Ptl lock(task_, pages_, table->page);
    if (tree_.find_pte_table(at) != table) continue;  // freed or collapsed while we waited
    const std::uint64_t to = (range.end - table->start) >> shape.shift;
    std::uint64_t i =
        PageTableTree::next_index(*table, (at - table->start) >> shape.shift, to);
    Step step = Step::kNext;
    while (i < to) {
      step = pte(*table, i, to);
      if (step != Step::kNext) break;
      i = PageTableTree::next_index(*table, i + 1, to);
    }
    const std::uint64_t batch =
        step == Step::kSplitFirst ? folio_pte_batch(kernel_, *table, i, to) : 1;
    at = address(*table, i);
    lock.unlock();
    if (tlb_.full()) tlb_.flush();
    if (step != Step::kSplitFirst) return;
    if (split_huge_page(task_, kernel_, to_split_)) continue;
    if (kernel_.version() < kWholeFolios) return;
    at = at + (batch << shape.shift);  // it stays as it is
  }
}

// One entry, under the table's lock.
ColdWalk::Step ColdWalk::pte(Table& table, std::uint64_t& i, std::uint64_t to) {
  const Pte entry = table.entry[i];
  if (entry.has(Pte::kGuard) || !entry.maps_anon()) return Step::kNext;
  if (compound_order(kernel_, compound_head(kernel_, entry.pfn())) > 0)
    return compound_pte(table, i, to);
  if (page(entry.pfn()).mapcount != 1) return Step::kNext;  // others use it, too
  age(table, i);
  if (reclaim_ == Reclaim::kNow) pageout_base(table, i);
  return Step::kNext;
}

// A piece of a huge page: it is split, unless all of it lies here (and the kernel looks).
ColdWalk::Step ColdWalk::compound_pte(Table& table, std::uint64_t& i, std::uint64_t to) {
  const Pfn head = compound_head(kernel_, table.entry[i].pfn());
  const bool shared = folio_maybe_mapped_shared(kernel_, head);
  to_split_ = head;
  if (kernel_.version() < kWholeFolios) return shared ? Step::kStop : Step::kSplitFirst;
  const std::uint64_t count = std::uint64_t{1} << compound_order(kernel_, head);
  const std::uint64_t batch = folio_pte_batch(kernel_, table, i, to);
  if (batch < count && !shared) return Step::kSplitFirst;
  if (batch < count || total_mapcount(kernel_, head) != static_cast<std::int64_t>(count)) {
    i += batch - 1;
    return Step::kNext;
  }
  bool dirty = (page(head).flags & Page::kDirty) != 0;
  for (std::uint64_t k = 0; k < count; ++k) {
    age(table, i + k);
    dirty |= table.entry[i + k].has(Pte::kDirty);
  }
  if (reclaim_ == Reclaim::kNow && !unevictable(head)) {
    if (!is_lazyfree(kernel_, head)) return Step::kSplitFirst;
    if (!dirty) drop_run(table, i, i + count);
  }
  i += count - 1;
  return Step::kNext;
}

void ColdWalk::age(Table& table, std::uint64_t index) {
  if (!table.entry[index].has(Pte::kYoung)) return;
  table.entry[index] = table.entry[index].without(Pte::kYoung);
  task_.charge(pages_.costs().pte_set);
  mm_.process().access_caches.forget();
  tlb_.unmapped(pages_.page_range(address(table, index)));
}

void ColdWalk::pageout_base(Table& table, std::uint64_t index) {
  const Pte entry = table.entry[index];
  if (unevictable(entry.pfn())) return;
  if (!is_lazyfree(kernel_, entry.pfn())) {
    if (can_swap()) to_swap_.push_back(entry.pfn());
    return;
  }
  Page& frame = page(entry.pfn());
  if (entry.has(Pte::kDirty) || (frame.flags & Page::kDirty) != 0)
    frame.flags =
        static_cast<std::uint16_t>((frame.flags & ~Page::kLazyfree) | Page::kSwapbacked);
  else
    drop_run(table, index, index + 1);
}

// try_to_unmap() of clean lazyfree pages: their contents go.  All belong to one page.
void ColdWalk::drop_run(Table& table, std::uint64_t from, std::uint64_t to) {
  const Pfn first = table.entry[from].pfn();
  const auto count = static_cast<std::uint32_t>(to - from);
  mm_.process().discarded({address(table, from), address(table, to)});
  for (std::uint64_t i = from; i < to; ++i) tree_.set_index(table, i, Pte{});
  task_.charge(pages_.costs().pte_clear * static_cast<std::int64_t>(count));
  pages_.rss_stat().add(task_, RssKind::kAnon, -static_cast<std::int64_t>(count));
  page_remove_rmap_ptes(kernel_, first, count);
  tlb_.remove_page(first, count);
  tlb_.unmapped({address(table, from), address(table, to)});
  kernel_.vmstat().pglazyfreed += count;
}

}  // namespace

void madvise_cold_or_pageout(Task& task, Mm& mm, Range range, Reclaim reclaim) {
  const Scope scope(task, kColdOrPageout);
  task.sync();
  mm.kernel().mm_shared().lru.lru_add_drain(task.cpu());
  ColdWalk walk(task, mm, reclaim);
  walk.walk(range);
}

}  // namespace faultline::kernel
