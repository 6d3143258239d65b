// SPDX-License-Identifier: Apache-2.0
//
// How a volatile page goes, and what is found in its place.
//
// Stands for: try_to_discard_one(), discard_vpage(), vrange_pte_range(), and what the
// patches add to handle_pte_fault() (mm/vrange.c, mm/memory.c, v7 to v10).  Model: the mark
// of v7 (a non-present entry with the PSE bit) and that of v9 (a swap type of its own) are
// one; v4 to v6 use it, too.
#include <algorithm>
#include <array>
#include <utility>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kTryToDiscard{"try_to_discard_one", true};
constexpr Centre kDiscardVrange{"discard_vrange", true};
constexpr std::size_t kSwapClusterMax = 32;

bool in_volatile(Mm& mm, const Vma& vma, VirtAddr at) {
  if ((vma.vm_flags & VM_LOCKED) != 0) return false;
  if (VrangeRoot* root = mm.vranges()) return root->find(at) != nullptr;
  return (vma.vm_flags & VM_VOLATILE) != 0;
}

// Holds the ranges of an address space; nothing where they are flags of VMAs.  May be
// unwound as Ptl.
class HoldRanges {
 public:
  HoldRanges(Task& task, Mm& mm) : task_(task), root_(mm.vranges()) {
    if (root_ != nullptr) root_->lock().lock(task_);
  }
  ~HoldRanges() noexcept(false) {
    if (root_ != nullptr) root_->lock().unlock(task_);
  }
  HoldRanges(const HoldRanges&) = delete;
  HoldRanges& operator=(const HoldRanges&) = delete;

 private:
  Task& task_;
  VrangeRoot* root_;
};

}  // namespace

struct Vranges::Batch {
  std::array<Pfn, kSwapClusterMax> pages;
  std::size_t count = 0;
  std::uint64_t scanned = 0;
};

bool Vranges::is_volatile(Task& task, Pfn page) {
  if (!any_kind()) return false;
  const Page& frame = kernel_.phys().page(page);
  if ((frame.flags & (Page::kAnon | Page::kHead)) != Page::kAnon || frame.mapcount == 0)
    return false;
  bool all = true;
  std::int64_t asked = 0;
  kernel_.mm_shared().lrus.for_each_place(page, [&](Mm& mm, const Vma& vma, VirtAddr at) {
    ++asked;
    all = in_volatile(mm, vma, at);
    return all;
  });
  task.charge(kernel_.profile().costs.vma_lookup * asked);
  return all && asked == frame.mapcount;
}

bool Vranges::try_to_discard(Task& task, Pfn page) {
  const Scope scope(task, kTryToDiscard);
  task.sync();
  return kernel_.mm_shared().lrus.undo_places(page, in_volatile, [&](Mm& mm, VirtAddr at) {
    return discard_at(task, mm, at, page);
  });
}

// One mapping: under the ranges' lock, so that whoever un-marks the range either still has
// the page or is told that it is gone.  A flag of the VMA is asked again under the table's
// lock, and from there on nobody else runs until the loss is noted (volatile_lock()).
bool Vranges::discard_at(Task& task, Mm& mm, VirtAddr at, Pfn page) {
  const HoldRanges held(task, mm);
  const auto still_volatile = [&] {
    const Vma* const vma = mm.vma_at(at);
    return vma != nullptr && in_volatile(mm, *vma, at);
  };
  if (!still_volatile()) return false;
  PageTables& pages = mm.pages();
  Table* table = pages.tree().find_pte_table(at);
  if (table == nullptr) return false;
  {
    Ptl lock(task, pages, table->page);
    if (pages.tree().find_pte_table(at) != table) return false;
    if (!still_volatile()) return false;
    const Pte entry = pages.tree().get(*table, at);
    if (!entry.maps_anon() || entry.pfn() != page) return false;
    mm.process().discarded(pages.page_range(at));
    pages.tree().set(*table, at, Pte::leaf(Pfn{0}, Pte::kVrange));
    note_purged(mm, at);
    task.charge(pages.costs().pte_clear);
    pages.rss_stat().add(task, RssKind::kAnon, -1);
    page_remove_rmap_pte(kernel_, page);
    put_page(kernel_, page, task.cpu());
  }
  flush_tlb_range(task, pages, pages.page_range(at));
  return true;
}

void Vranges::note_purged(Mm& mm, VirtAddr at) {
  bool was_purged = false;
  if (VrangeRoot* root = mm.vranges()) {
    was_purged = std::exchange(root->find(at)->purged, true);
  } else {
    Vma& vma = *mm.vma_at(at);
    was_purged = (vma.vm_flags & VM_PURGED) != 0;
    vma.vm_flags |= VM_PURGED;
    ++mm.vma_purges;
  }
  if (!was_purged) ++kernel_.vmstat().vrange_purged;
}

// v10: the walk splits a huge page that lies in its way.
bool Vranges::split_huge(Task& task, Mm& mm, VirtAddr at) {
  if (version_ != VrangeVersion::k10) return false;
  const Pte entry = mm.pages().tree().leaf_at(at);
  return entry.maps_anon() && split_huge_page(task, kernel_, entry.pfn());
}

// vrange_pte_range(): up to a batch of pages off their lists, from `at` on.
void Vranges::collect(Task& task, Mm& mm, VirtAddr& at, VirtAddr end, int node,
                      Batch& batch) {
  PageTables& pages = mm.pages();
  PageTableTree& tree = pages.tree();
  const std::uint64_t page_size = pages.geometry().page_size();
  while (at < end && batch.count < batch.pages.size()) {
    at = tree.next_in_use(at, end, tree.pmd_level());
    if (at >= end) return;
    task.charge(pages.costs().pmd_walk);
    const VirtAddr stop = std::min(end, pages.pmd_range(at).end);
    if (pages.maps_huge(at) && !split_huge(task, mm, at)) {
      at = stop;
      continue;
    }
    for (; at < stop && batch.count < batch.pages.size(); at = at + page_size) {
      const Pte entry = tree.leaf_at(at);
      if (!entry.maps_anon()) continue;
      ++batch.scanned;
      const Pfn pfn = entry.pfn();
      if (compound_order(kernel_, compound_head(kernel_, pfn)) != 0) continue;
      if (node >= 0 && kernel_.phys().node_of(pfn) != node) continue;
      const Vma* vma = mm.vma_at(at);
      if (vma == nullptr || (vma->vm_flags & VM_LOCKED) != 0) continue;
      if (kernel_.mm_shared().lrus.isolate(pfn)) batch.pages[batch.count++] = pfn;
    }
  }
}

std::uint64_t Vranges::discard_range(Task& task, Mm& mm, Range range, int node,
                                     ScanControl& sc) {
  const Scope scope(task, kDiscardVrange);
  Lru& lru = kernel_.mm_shared().lrus;
  Vmstat& vmstat = kernel_.vmstat();
  std::uint64_t freed = 0;
  for (VirtAddr at = range.start; at < range.end;) {
    Batch batch;
    task.sync();
    collect(task, mm, at, range.end, node, batch);
    (sc.kswapd() ? vmstat.pgvscan_kswapd : vmstat.pgvscan_direct) += batch.scanned;
    for (std::size_t i = 0; i < batch.count; ++i) {
      task.charge(kernel_.profile().costs.lru_scan_page);
      const bool gone =
          is_volatile(task, batch.pages[i]) && try_to_discard(task, batch.pages[i]);
      task.sync();
      lru.putback(batch.pages[i], task.cpu());
      if (!gone) continue;
      task.charge(kernel_.profile().costs.page_free);
      ++freed;
    }
  }
  (sc.kswapd() ? vmstat.pgdiscard_kswapd : vmstat.pgdiscard_direct) += freed;
  return freed;
}

FaultResult Vranges::fault(Fault& fault, Table& table, Pte entry, Table& pmd) {
  bool lost = false;
  {
    const HoldRanges held(fault.task, fault.mm);
    fault.task.charge(fault.pages.costs().vma_lookup);
    if (VrangeRoot* root = fault.mm.vranges()) {
      Vrange* range = root->find(fault.at);
      lost = range != nullptr && range->purged;
      // The process is about to recover: its range goes last.
      if (lost) lru_add(fault.task, *range);
    } else {
      constexpr std::uint64_t kBoth = VM_VOLATILE | VM_PURGED;
      lost = (fault.vma.vm_flags & kBoth) == kBoth;
    }
  }
  if (lost && kernel_.config().vrange_fault == VrangeFault::kSigbus) {
    ++kernel_.vmstat().vrange_sigbus;
    return FaultResult::kSigbus;
  }
  {
    Ptl lock(fault.task, fault.pages, table.page);
    PageTableTree& tree = fault.pages.tree();
    if (tree.find_pte_table(fault.at) != &table ||
        tree.get(table, fault.at).raw() != entry.raw())
      return FaultResult::kDone;
    tree.set(table, fault.at, Pte{});
    fault.task.charge(fault.pages.costs().pte_clear);
  }
  return handle_pte_fault(fault, pmd);
}

}  // namespace faultline::kernel
