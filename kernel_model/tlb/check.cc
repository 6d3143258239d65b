// SPDX-License-Identifier: Apache-2.0
//
// What is always true of the TLBs at rest: they hold nothing that the page tables don't.
#include <bit>

#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/tlb/tlb.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

bool present(const PageTables& pages, VirtAddr at) {
  const PageView::Kind kind = pages.look(at).kind;
  return kind != PageView::kNone && kind != PageView::kSwap && kind != PageView::kGuard;
}

}  // namespace

void check_tlbs(Kernel& kernel) {
  if (kernel.tlbs() == nullptr) return;
  kernel.tlbs()->for_each([&](Asid asid, const TlbEntry& entry) {
    const PageTables& pages = kernel.processes()[asid - 1]->mm().pages();
    const Range range = entry.range();
    const std::uint64_t step = pages.maps_huge(range.start) ? pages.geometry().pmd_size()
                                                            : pages.geometry().page_size();
    for (VirtAddr at = range.start; at < range.end; at = at + step)
      FAULTLINE_CHECK(present(pages, at));
  });
}

}  // namespace faultline::kernel
