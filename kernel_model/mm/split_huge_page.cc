// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/split_huge_page.h"

#include <algorithm>
#include <vector>

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
  for_each_place_of(kernel, head, [&](Mm& mm, Vma&, Range range) {
    const Pte entry = mm.pages().tree().leaf_at(range.start);
    if (entry.present() && entry.pfn() == head && entry.maps_anon() &&
        mm.pages().maps_huge(range.start))
      mm.pages().split_huge_pmd(task, range.start);
  });
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

bool split_failed(Kernel& kernel) {
  ++kernel.vmstat().thp_split_page_failed;
  return false;
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
  const auto held_by_others = [&] {
    return kernel.phys().page(head).refcount !=
           total_mapcount(kernel, head) + extra_references;
  };
  if (held_by_others()) return split_failed(kernel);  // can_split_huge_page()
  unmap_page(task, kernel, head);
  task.charge(split_cost(kernel, std::uint64_t{1} << compound_order(kernel, head)));
  task.sync();
  if (held_by_others()) return split_failed(kernel);  // page_ref_freeze()
  map_unused_to_zeropage(task, kernel, head);
  const bool counts = compound_order(kernel, head) == kernel.profile().geometry.pmd_order();
  const std::uint64_t freed = break_up_compound(kernel, head, task.cpu());
  task.charge(kernel.profile().costs.page_free * static_cast<std::int64_t>(freed));
  if (counts) ++kernel.vmstat().thp_split_page;
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
    if (!queue.contains(head) || split_huge_page(task, kernel, head)) continue;
    queue.remove(head);
    queue.add(head);
  }
  const std::uint64_t after = kernel.phys().free_pages_total();
  return after > before ? after - before : 0;
}

}  // namespace faultline::kernel
