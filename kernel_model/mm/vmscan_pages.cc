// SPDX-License-Identifier: Apache-2.0
//
// What reclaim does to one page, and what is done when it finds none.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kShrinkPageList{"shrink_folio_list", true};
constexpr Centre kTryToUnmap{"try_to_unmap", true};
constexpr Centre kPageReferenced{"folio_referenced", true};
constexpr Centre kReclaimPages{"reclaim_pages", true};
constexpr Centre kOutOfMemory{"out_of_memory", true};

bool is_lazy(const Page& page) {
  return (page.flags & Page::kLazyfree) != 0;
}
bool is_anon(const Page& page) {
  return (page.flags & Page::kAnon) != 0;
}

}  // namespace

std::uint64_t Vmscan::shrink_page_list(Task& task, Batch& batch, ScanControl& sc) {
  const Scope scope(task, kShrinkPageList);
  Lru& lru = kernel_.mm_shared().lrus;
  PhysMem& phys = kernel_.phys();
  PageLocks& locks = kernel_.mm_shared().page_locks;
  std::uint64_t freed = 0;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Pfn page = batch.pages[i];
    const std::uint64_t before = phys.stats().pgfree;
    const unsigned order = compound_order(kernel_, page);
    const Fate fate = shrink_page(task, page, sc);
    if (fate == Fate::kGone) continue;
    task.sync();
    if (fate == Fate::kActivate) {
      phys.page(page).flags |= Page::kActive;
      ++kernel_.vmstat().pgactivate;
    }
    if (locks.on() && phys.page(page).refcount > 1) {
      batch.pages[kept++] = page;
      continue;
    }
    lru.putback(page, task.cpu());
    if (fate == Fate::kFreed && phys.stats().pgfree > before)
      freed += std::uint64_t{1} << order;
  }
  batch.count = kept;
  putback(task, batch);
  locks.settle(task);
  Swap& swap = kernel_.mm_shared().swap;
  swap.queues() ? swap.wait_for_room(task) : swap.wait_for_writes(task);
  return freed;
}

Vmscan::Fate Vmscan::shrink_page(Task& task, Pfn page, ScanControl& sc) {
  if (kernel_.mm_shared().swap.move_of(page) != Swap::Move::kNone)
    return shrink_swap_cache(task, page, sc);
  task.charge(kernel_.mm_shared().page_locks.lru_scan_page());
  task.sync();
  Page& frame = kernel_.phys().page(page);
  if (frame.refcount == 1) return Fate::kFreed;  // only we have it still
  Lru& lru = kernel_.mm_shared().lrus;
  // PAGEREF_DISCARD: ahead of the question who uses it.
  if (Vranges& vranges = kernel_.mm_shared().vranges(); vranges.is_volatile(task, page)) {
    if (!vranges.try_to_discard(task, page)) return Fate::kKeep;
    Vmstat& v = kernel_.vmstat();
    ++(sc.kswapd() ? v.pgdiscard_kswapd : v.pgdiscard_direct);
    return Fate::kFreed;
  }
  if (sc.why != ScanControl::For::kAdvice) {
    const References refs = page_referenced(task, page);
    if (refs.locked) return Fate::kKeep;
    // page_check_references(): to 5.8 a used anonymous page is active at once, later pages
    // of any kind need to be found used twice.
    const bool twice = lru.test_clear_referenced(page);
    if (refs.young > 0) {
      const bool anon_at_once =
          kernel_.config().anon_starts_active && (frame.flags & Page::kSwapbacked) != 0;
      lru.set_referenced(page);
      return anon_at_once || twice || refs.young > 1 ? Fate::kActivate : Fate::kKeep;
    }
  }
  if ((frame.flags & Page::kHead) != 0) return shrink_huge(task, page);
  return is_anon(frame) ? shrink_anon(task, page) : shrink_file(task, page);
}

// Without room for it as a whole, a huge page is split, and its pieces are looked at in the
// next round.  From 5.19 on one that is lazily freed goes whole (commit 820c4e2e6f51).
Vmscan::Fate Vmscan::shrink_huge(Task& task, Pfn head) {
  constexpr unsigned kWholeLazyfree = 5019;
  Page& frame = kernel_.phys().page(head);
  if (is_lazy(frame)) {
    if (kernel_.version() >= kWholeLazyfree) return shrink_lazy_folio(task, head);
  } else if (kernel_.mm_shared().swap.free_pages() == 0) {
    return Fate::kActivate;
  }
  frame.flags |= Page::kLru;
  --frame.refcount;
  kernel_.mm_shared().lrus.add_tail(frame, head);
  split_huge_page(task, kernel_, head);
  return Fate::kGone;
}

// folio_referenced(): clears the young bits, answers how many there were.
Vmscan::References Vmscan::page_referenced(Task& task, Pfn page) {
  const Scope scope(task, kPageReferenced);
  References refs;
  const auto look = [&](Mm& mm, const Vma& vma, VirtAddr at) {
    if ((vma.vm_flags & VM_LOCKED) != 0) {
      refs.locked = true;
      return false;
    }
    PageTables& pages = mm.pages();
    Table* table = pages.maps_huge(at) ? pages.tree().find_pmd_table(at)
                                       : pages.tree().find_pte_table(at);
    const Pte entry = pages.tree().get(*table, at);
    if (!entry.has(Pte::kYoung)) return true;
    ++refs.young;
    pages.tree().set(*table, at, entry.without(Pte::kYoung));
    mm.process().access_caches.forget();
    return true;
  };
  if ((kernel_.phys().page(page).flags & Page::kHead) == 0) {
    kernel_.mm_shared().lrus.for_each_place(page, look);
    return refs;
  }
  for_each_place_of(kernel_, page, [&](Mm& mm, Vma& vma, Range range) {
    const std::uint64_t step = mm.pages().maps_huge(range.start)
                                   ? range.bytes()
                                   : mm.pages().geometry().page_size();
    for (VirtAddr at = range.start; at < range.end && !refs.locked; at = at + step) {
      const Pte entry = mm.pages().tree().leaf_at(at);
      if (entry.maps_anon() && compound_head(kernel_, entry.pfn()) == page)
        look(mm, vma, at);
    }
  });
  return refs;
}

// Neither the page nor any of its mappings has been written to.
bool Vmscan::all_clean(Pfn page) {
  bool clean = (kernel_.phys().page(page).flags & Page::kDirty) == 0;
  kernel_.mm_shared().lrus.for_each_place(page, [&](Mm& mm, const Vma&, VirtAddr at) {
    clean &= !mm.pages().tree().leaf_at(at).has(Pte::kDirty);
    return clean;
  });
  return clean;
}

Vmscan::Fate Vmscan::shrink_anon(Task& task, Pfn page) {
  Page& frame = kernel_.phys().page(page);
  Swap& swap = kernel_.mm_shared().swap;
  if (is_lazy(frame)) {
    if (!all_clean(page)) {  // written to after MADV_FREE: kept
      frame.flags =
          static_cast<std::uint16_t>((frame.flags & ~Page::kLazyfree) | Page::kSwapbacked);
      return Fate::kActivate;
    }
    if (!unmap(task, page, std::nullopt)) return Fate::kKeep;
    ++kernel_.vmstat().pglazyfreed;
    return Fate::kFreed;
  }
  const auto slot = swap.get_slot();  // add_to_swap()
  if (!slot) return Fate::kActivate;
  // TTU_LZFREE (4.5 to 4.11): what MADV_FREE made clean and nobody has written since needs
  // no copy.  No other anonymous page that is mapped is clean here.
  if (kernel_.config().madv_free == MadvFreeRule::k4_5 && all_clean(page)) {
    swap.put(*slot, task.cpu());
    return unmap(task, page, std::nullopt) ? Fate::kFreed : Fate::kActivate;
  }
  if (PageContents* contents = kernel_.contents()) contents->swapped_out(page, *slot);
  if (swap.queues()) return swap_out(task, page, *slot);
  const bool unmapped = unmap(task, page, slot);
  swap.put(*slot, task.cpu());  // the entries hold it now
  if (!unmapped) return Fate::kActivate;
  swap.write(task, *slot);
  return Fate::kFreed;
}

// The rest of add_to_swap(), try_to_unmap() and pageout(), for a write that nobody waits
// for.
Vmscan::Fate Vmscan::swap_out(Task& task, Pfn page, std::uint32_t slot) {
  Swap& swap = kernel_.mm_shared().swap;
  swap.add_to_cache(page, slot);
  if (!unmap(task, page, slot)) {
    swap.delete_from_cache(page, task.cpu());
    return Fate::kActivate;
  }
  // A fault may have taken it back meanwhile, and even freed it.
  if (swap.move_of(page) == Swap::Move::kNone) return Fate::kFreed;
  swap.start_write(task, page);
  return Fate::kKeep;
}

// A page that nobody maps any more: being written (then it is passed over before anything
// else is asked), or clean and to be freed.
Vmscan::Fate Vmscan::shrink_swap_cache(Task& task, Pfn page, ScanControl& sc) {
  Swap& swap = kernel_.mm_shared().swap;
  task.charge(kernel_.mm_shared().page_locks.lru_scan_page());
  task.sync();
  if (swap.move_of(page) == Swap::Move::kWriting) {
    ++sc.nr_writeback;
    return Fate::kKeep;
  }
  if (swap.move_of(page) != Swap::Move::kClean) return Fate::kKeep;  // meanwhile taken back
  swap.delete_from_cache(page, task.cpu());                          // __remove_mapping()
  return Fate::kFreed;
}

// __remove_mapping(): clean pages of regular files leave the cache.
Vmscan::Fate Vmscan::shrink_file(Task& task, Pfn page) {
  const Lru& lru = kernel_.mm_shared().lrus;
  File* file = kernel_.mm_shared().files.find(lru.file_of(page));
  if (file == nullptr || file->shmem())
    return Fate::kActivate;  // Model: shmem isn't swapped
  if (!unmap(task, page, std::nullopt)) return Fate::kKeep;
  task.sync();
  if (kernel_.phys().page(page).refcount != 2) return Fate::kKeep;
  file->remove(lru.index_of(page), task.cpu());
  return Fate::kFreed;
}

// try_to_unmap(): every entry of the page becomes none, or one of the swap slot.  False:
// somebody still maps it.
bool Vmscan::unmap(Task& task, Pfn page, std::optional<std::uint32_t> slot) {
  const Scope scope(task, kTryToUnmap);
  task.sync();
  return kernel_.mm_shared().lrus.undo_places(
      page, [](Mm&, const Vma& vma, VirtAddr) { return (vma.vm_flags & VM_LOCKED) == 0; },
      [&](Mm& mm, VirtAddr at) { return unmap_at(task, mm, at, page, slot); });
}

bool Vmscan::unmap_at(Task& task, Mm& mm, VirtAddr at, Pfn page,
                      std::optional<std::uint32_t> slot) {
  PageTables& pages = mm.pages();
  Table* table = pages.tree().find_pte_table(at);
  if (table == nullptr) return false;
  Ptl lock(task, pages, table->page);
  if (pages.tree().find_pte_table(at) != table) return false;
  const Pte entry = pages.tree().get(*table, at);
  if (!entry.present() || entry.zero_page() || entry.pfn() != page) return false;
  const bool anon = entry.maps_anon();
  // A fault, or the end of an entry, has taken it out of the swap cache, and the slot with
  // it: it stays where it still is.
  Swap& swap = kernel_.mm_shared().swap;
  if (slot && swap.queues() && swap.move_of(page) == Swap::Move::kNone) return false;
  if (anon && !slot) {
    // A write that came while we waited keeps it.
    if (entry.has(Pte::kDirty)) return false;
    mm.process().discarded(pages.page_range(at));
  }
  mm.process().access_caches.forget();
  pages.tree().set(*table, at, slot && anon ? Swap::entry_of(*slot) : Pte{});
  task.charge(pages.costs().pte_clear);
  if (anon) {
    if (slot) {
      swap.duplicate(*slot);
      ++mm.swap_ents;
    }
    pages.rss_stat().add(task, RssKind::kAnon, -1);
    page_remove_rmap_pte(kernel_, page);
  } else {
    pages.rss_stat().add(
        task, is_shmem_page(kernel_, page) ? RssKind::kShmem : RssKind::kFile, -1);
    page_remove_file_rmap(kernel_, page);
  }
  put_page(kernel_, page, task.cpu());
  lock.unlock();
  flush_tlb_range(task, pages, pages.page_range(at));
  return true;
}

std::uint64_t Vmscan::reclaim_pages(Task& task, const std::vector<Pfn>& pages) {
  const Scope scope(task, kReclaimPages);
  Lru& lru = kernel_.mm_shared().lrus;
  lru.start();
  ScanControl sc;
  sc.why = ScanControl::For::kAdvice;
  std::uint64_t freed = 0;
  std::size_t next = 0;
  while (next < pages.size()) {
    Batch batch;
    task.sync();
    for (; next < pages.size() && batch.count < batch.pages.size(); ++next)
      if (lru.isolate(pages[next])) batch.pages[batch.count++] = pages[next];
    freed += shrink_page_list(task, batch, sc);
  }
  return freed;
}

// oom_badness(): resident and swapped pages, and page tables.
bool Vmscan::out_of_memory(Task& task) {
  const Scope scope(task, kOutOfMemory);
  task.sync();
  Process* victim = nullptr;
  std::uint64_t worst = 0;
  for (const auto& process : kernel_.processes()) {
    Mm& mm = process->mm();
    if (process->oom_killed || mm.vmas.size() == 0) continue;
    const std::uint64_t points =
        mm.rss() + mm.swap_ents +
        (mm.pages().pgtables_bytes() >> kernel_.profile().geometry.page_shift);
    if (points <= worst) continue;
    worst = points;
    victim = process.get();
  }
  if (victim == nullptr) return false;
  oom_kill(task, *victim);
  return true;
}

// oom_kill_process(), oom_reap_task(): its private memory goes at once, if its mmap_lock
// can be had for read.
void Vmscan::oom_kill(Task& task, Process& victim) {
  victim.oom_killed = true;
  victim.access_caches.forget();
  ++kernel_.vmstat().oom_kill;
  Mm& mm = victim.mm();
  constexpr int kMaxOomReapRetries = 10;
  for (int tries = 0; !mm.mmap_lock().down_read_trylock(task); ++tries) {
    if (tries == kMaxOomReapRetries) return;
    task.sleep(Duration::ms(100));
  }
  for (Vma& vma : mm.vmas) {
    if ((vma.vm_flags & (VM_HUGETLB | VM_PFNMAP | VM_SHARED)) != 0) continue;
    victim.discarded(vma.range());
    mm.pages().zap_page_range(task, vma, vma.range());
  }
  mm.mmap_lock().up_read(task);
}

}  // namespace faultline::kernel
