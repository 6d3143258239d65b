// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/split_huge_page.h"

#include <algorithm>
#include <set>
#include <vector>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kSplitHugePage{"split_huge_page_to_list", true};
constexpr Centre kDeferredSplitScan{"deferred_split_scan", true};

// unmap_page(): PMD mappings become PTE mappings, and those migration entries.  On the way
// the page looks partially unmapped: to 6.8 that queues it (and counts), whoever maps it;
// from 6.12 only one that PTEs map already, since its PMD would go in one step.
void unmap_page(Task& task, Kernel& kernel, Pfn head) {
  const bool by_pmd = compound_mapcount(kernel, head) > 0;
  // One after the other: splitting lets others run, who may change the VMAs.
  while (compound_mapcount(kernel, head) > 0) {
    Mm* found = nullptr;
    VirtAddr where;
    for_each_place_of(kernel, head, [&](Mm& mm, Vma&, Range range) {
      if (found != nullptr || !mm.pages().maps_huge(range.start)) return;
      const Pte entry = mm.pages().tree().leaf_at(range.start);
      if (!entry.maps_anon() || entry.pfn() != head) return;
      found = &mm;
      where = range.start;
    });
    if (found == nullptr) break;  // it is where nobody looks: an mm that exits
    const MmGrab grab(*found);
    found->pages().split_huge_pmd(task, where);
  }
  const bool any = kernel.config().deferred_split == DeferredSplitRule::kAnyUnmap;
  if (any || !by_pmd) queue_for_deferred_split(kernel, head);
}

// Unmapping, copying of struct pages, mapping again: an entry of each base page is written
// twice.
Duration split_cost(const Kernel& kernel, std::uint64_t pages) {
  const arch::Costs& costs = kernel.profile().costs;
  return (costs.pte_clear + costs.pte_set) * static_cast<std::int64_t>(pages);
}

// try_to_map_unused_to_zeropage() (mm/migrate.c, 6.12): mapped again, a piece that holds
// only zeros becomes the zero page.  Model: only where somebody keeps the contents of
// frames; otherwise every piece is taken to hold data.
void map_unused_to_zeropage(Task& task, Kernel& kernel, Pfn head) {
  const PageContents* contents = kernel.contents();
  if (kernel.version() < 6012 || contents == nullptr) return;
  if ((kernel.phys().page(head).flags & Page::kUnevictable) != 0) return;
  for_each_place_of(kernel, head, [&](Mm& mm, Vma& vma, Range range) {
    if ((vma.vm_flags & VM_LOCKED) != 0) return;
    PageTables& pages = mm.pages();
    for (VirtAddr at = range.start; at < range.end;
         at = at + pages.geometry().page_size()) {
      const Pte entry = pages.tree().leaf_at(at);
      if (!entry.maps_anon() || compound_head(kernel, entry.pfn()) != head) continue;
      if (contents->byte(entry.pfn()) == 0) pages.map_zero_page_instead(task, at);
    }
  });
}

bool split_failed(Kernel& kernel, Pfn head) {
  const unsigned order = compound_order(kernel, head);
  ++kernel.mm_shared().mthp_stats[order].split_failed;
  if (order == kernel.profile().geometry.pmd_order())
    ++kernel.vmstat().thp_split_page_failed;
  return false;
}

// thp_underused(): stops at the first page that decides.
bool thp_underused(Task& task, Kernel& kernel, Pfn head) {
  const std::uint64_t pages = std::uint64_t{1} << compound_order(kernel, head);
  const std::uint64_t max_none = kernel.mm_shared().khugepaged.knobs().max_ptes_none;
  const PageContents* contents = kernel.contents();
  if (max_none + 1 >= kernel.profile().geometry.pages_per_pmd() || contents == nullptr)
    return false;
  std::uint64_t zero = 0, looked_at = 0;
  while (looked_at < pages && zero <= max_none && looked_at - zero < pages - max_none) {
    if (contents->byte({head.v + static_cast<std::uint32_t>(looked_at)}) == 0) ++zero;
    ++looked_at;
  }
  // memchr_inv() reads at about the speed of a copy.
  task.charge(stream_time(looked_at * kernel.profile().geometry.page_size(),
                          kernel.profile().costs.copy_rate));
  return zero > max_none;
}

// deferred_split_scan() of one page: true if it was split.
bool shrink_one(Task& task, Kernel& kernel, Pfn head) {
  DeferredSplitQueue& queue = kernel.mm_shared().deferred_split;
  const bool partial = queue.partially_mapped(head);
  const bool split =
      (partial || ((kernel.phys().page(head).flags & Page::kUnevictable) == 0 &&
                   thp_underused(task, kernel, head))) &&
      split_huge_page(task, kernel, head);
  if (split && !partial) ++kernel.vmstat().thp_underused_split_page;
  return split;
}

}  // namespace

void for_each_place_of(Kernel& kernel, Pfn head,
                       const std::function<void(Mm&, Vma&, Range)>& f) {
  const unsigned shift = kernel.profile().geometry.page_shift;
  const std::uint64_t first = page_index(kernel, head);
  const std::uint64_t end = first + (std::uint64_t{1} << compound_order(kernel, head));
  for (const auto& process : kernel.processes()) {
    Mm& mm = process->mm();
    for (Vma& vma : mm.vmas) {
      const std::uint64_t vma_end = vma.vm_pgoff + (vma.bytes() >> shift);
      if (!vma.anon_vma || vma_end <= first || vma.vm_pgoff >= end) continue;
      const std::uint64_t from = std::max(first, vma.vm_pgoff) - vma.vm_pgoff;
      const std::uint64_t to = std::min(end, vma_end) - vma.vm_pgoff;
      f(mm, vma, {vma.start + (from << shift), vma.start + (to << shift)});
    }
  }
}

bool split_huge_page(Task& task, Kernel& kernel, Pfn head, std::int32_t extra_references) {
  Scope scope(task, kSplitHugePage);
  task.sync();
  Page& page = kernel.phys().page(head);
  const auto held_by_others = [&] {
    return page.refcount != total_mapcount(kernel, head) + extra_references;
  };
  if (held_by_others()) return split_failed(kernel, head);  // can_split_huge_page()
  // The page lock, and the caller's reference: nobody else splits it, and it stays.
  std::set<Pfn>& locked = kernel.mm_shared().locked_pages;
  if (!locked.insert(head).second) return split_failed(kernel, head);
  ++page.refcount;
  unmap_page(task, kernel, head);
  task.charge(split_cost(kernel, std::uint64_t{1} << compound_order(kernel, head)));
  task.sync();
  locked.erase(head);
  if (put_page(kernel, head, task.cpu()) > 0)
    return split_failed(kernel, head);                          // it is gone
  if (compound_mapcount(kernel, head) > 0 || held_by_others())  // page_ref_freeze()
    return split_failed(kernel, head);
  map_unused_to_zeropage(task, kernel, head);
  const unsigned order = compound_order(kernel, head);
  ++kernel.mm_shared().mthp_stats[order].split;
  const std::uint64_t freed = break_up_compound(kernel, head, task.cpu());
  task.charge(kernel.profile().costs.page_free * static_cast<std::int64_t>(freed));
  if (order == kernel.profile().geometry.pmd_order()) ++kernel.vmstat().thp_split_page;
  return true;
}

std::uint64_t deferred_split_scan(Task& task, Kernel& kernel, std::uint64_t pages) {
  Scope scope(task, kDeferredSplitScan);
  task.sync();
  DeferredSplitQueue& queue = kernel.mm_shared().deferred_split;
  std::vector<Pfn> heads;
  for (const auto& [age, head] : queue.by_age()) {
    if (heads.size() == pages) break;
    heads.push_back(head);
  }
  const std::uint64_t before = kernel.phys().free_pages_total();
  for (const Pfn head : heads) {
    task.sync();
    if (!queue.contains(head) || shrink_one(task, kernel, head)) continue;
    if (!queue.contains(head)) continue;  // freed meanwhile
    if (queue.partially_mapped(head)) {
      queue.requeue(head);
    } else {
      queue.remove(head);
      kernel.phys().page(head).flags &= static_cast<std::uint16_t>(~Page::kDeferredSplit);
    }
  }
  const std::uint64_t after = kernel.phys().free_pages_total();
  return after > before ? after - before : 0;
}

}  // namespace faultline::kernel
