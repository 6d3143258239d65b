// SPDX-License-Identifier: Apache-2.0
//
// What puts large folios on the deferred-split list and takes them off, with the stats of
// their size: see rmap.h and split_huge_page.h.
#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

MthpStat& mthp_stat(Kernel& kernel, const Page& head) {
  return kernel.mm_shared().mthp_stats[head.order];
}

}  // namespace

void queue_for_deferred_split(Kernel& kernel, Pfn head) {
  Page& page = kernel.phys().page(head);
  const bool queued = (page.flags & Page::kDeferredSplit) != 0;
  if (queued && !kernel.config().shrink_underused) return;
  DeferredSplitQueue& queue = kernel.mm_shared().deferred_split;
  page.flags |= Page::kDeferredSplit;
  queue.add(head);
  if (!queue.set_partially_mapped(head)) return;
  ++mthp_stat(kernel, page).split_deferred;
  ++mthp_stat(kernel, page).nr_anon_partially_mapped;
  if (page.order == kernel.profile().geometry.pmd_order())
    ++kernel.vmstat().thp_deferred_split_page;
}

void queue_as_underused(Kernel& kernel, Pfn head) {
  if (!kernel.config().shrink_underused) return;
  kernel.phys().page(head).flags |= Page::kDeferredSplit;
  kernel.mm_shared().deferred_split.add(head);
}

void forget_large_folio(Kernel& kernel, Pfn head) {
  const Page& page = kernel.phys().page(head);
  --mthp_stat(kernel, page).nr_anon;
  if ((page.flags & Page::kDeferredSplit) == 0) return;
  DeferredSplitQueue& queue = kernel.mm_shared().deferred_split;
  if (queue.partially_mapped(head)) --mthp_stat(kernel, page).nr_anon_partially_mapped;
  queue.remove(head);
}

}  // namespace faultline::kernel
