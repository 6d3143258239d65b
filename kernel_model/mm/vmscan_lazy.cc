// SPDX-License-Identifier: Apache-2.0
//
// A large folio that MADV_FREE has marked goes whole if nobody has written to it since, and
// stays whole if somebody has: only its PMD is split, to unmap it page by page.
//
// Stands for: try_to_unmap_one() of a lazily freed folio, under shrink_folio_list(), v5.19-
// 6.18.  Live 6.18: MADV_PAGEOUT of such a huge page adds 1 to thp_split_pmd, 512 to
// pglazyfreed if it is clean, and nothing to thp_split_page.
#include <algorithm>

#include "kernel_model/mm/folio.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kTryToUnmap{"try_to_unmap", true};

// The first place that maps a piece of the folio, up to the end of its VMA's part of it.
struct Place {
  Mm* mm = nullptr;
  Range range;
  bool locked = false;
};

Place find_place(Kernel& kernel, Pfn head) {
  Place place;
  for_each_place_of(kernel, head, [&](Mm& mm, const Vma& vma, Range range) {
    const std::uint64_t size = mm.pages().geometry().page_size();
    for (VirtAddr at = range.start; at < range.end && place.mm == nullptr; at = at + size) {
      const Pte entry = mm.pages().tree().leaf_at(at);
      if (entry.maps_anon() && compound_head(kernel, entry.pfn()) == head)
        place = {&mm, {at, range.end}, (vma.vm_flags & VM_LOCKED) != 0};
    }
  });
  return place;
}

// Pieces that lie in a row from the start of the place on.  False: they stay, since one was
// written to, or something has changed while the lock was awaited.
bool unmap_pieces(Task& task, Place place, Pfn head) {
  Kernel& kernel = place.mm->kernel();
  PageTables& pages = place.mm->pages();
  const VirtAddr at = place.range.start;
  Table* const table = pages.tree().find_pte_table(at);
  if (table == nullptr) return false;
  const LevelShape& shape = pages.tree().shape(table->level);
  Ptl lock(task, pages, table->page);
  if (pages.tree().find_pte_table(at) != table) return false;
  const std::uint64_t first = shape.index(at);
  const Pte entry = table->entry[first];
  if (!entry.maps_anon() || compound_head(kernel, entry.pfn()) != head) return false;
  const std::uint64_t end =
      first + folio_pte_batch(
                  kernel, *table, first,
                  std::min(shape.entries(), first + (place.range.bytes() >> shape.shift)));
  bool dirty = (kernel.phys().page(head).flags & Page::kDirty) != 0;
  for (std::uint64_t i = first; i < end; ++i) dirty |= table->entry[i].has(Pte::kDirty);
  if (dirty) return false;
  const auto count = static_cast<std::uint32_t>(end - first);
  const Range gone{at, at + (end - first) * pages.geometry().page_size()};
  place.mm->process().discarded(gone);
  for (std::uint64_t i = first; i < end; ++i) pages.tree().set_index(*table, i, Pte{});
  task.charge(pages.costs().pte_clear * static_cast<std::int64_t>(count));
  pages.rss_stat().add(task, RssKind::kAnon, -static_cast<std::int64_t>(count));
  page_remove_rmap_ptes(kernel, entry.pfn(), count);
  put_page(kernel, head, task.cpu(), count);
  lock.unlock();
  flush_tlb_range(task, pages, gone);
  return true;
}

}  // namespace

Vmscan::Fate Vmscan::shrink_lazy_folio(Task& task, Pfn head) {
  const Scope scope(task, kTryToUnmap);
  task.sync();
  Page& frame = kernel_.phys().page(head);
  while (total_mapcount(kernel_, head) > 0) {
    const Place place = find_place(kernel_, head);
    if (place.mm == nullptr || place.locked) return Fate::kKeep;
    const MmGrab grab(*place.mm);
    place.mm->pages().split_huge_pmd(task, place.range.start);
    if (unmap_pieces(task, place, head)) continue;
    // Written to: an ordinary page again.
    frame.flags =
        static_cast<std::uint16_t>((frame.flags & ~Page::kLazyfree) | Page::kSwapbacked);
    return Fate::kActivate;
  }
  kernel_.vmstat().pglazyfreed += std::uint64_t{1} << frame.order;
  return Fate::kFreed;
}

}  // namespace faultline::kernel
