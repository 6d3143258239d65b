// SPDX-License-Identifier: Apache-2.0
//
// Faults that map or write a whole huge page.
//
// The one fact that most results follow from: the huge page is allocated and cleared with
// no page-table lock held, only mmap_lock for read or the VMA's lock.  So threads that
// touch the same range at once each clear one, all but the first to take the PMD's lock for
// nothing; and whoever wants mmap_lock for write waits for the longest clear.
//
// Stands for: do_huge_pmd_anonymous_page(), __do_huge_pmd_anonymous_page(),
// do_huge_pmd_wp_page() (mm/huge_memory.c, v4.15-6.18).
#include "kernel_model/mm/huge_fault.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDoHugePmdAnonymousPage{"do_huge_pmd_anonymous_page", true};
constexpr Centre kDoHugePmdAnonymousPageInner{"__do_huge_pmd_anonymous_page", true};

// The read fault: one page of zeros for all, read-only.
FaultResult map_huge_zero_page(Fault& fault, Table& pmd) {
  PageTables& pages = fault.pages;
  TablePage* deposited = pages.alloc_table(fault.task, pages.tree().pte_level());
  if (deposited == nullptr) return FaultResult::kOom;
  const auto zero = fault.kernel.mm_shared().get_huge_zero_page(fault.task);
  if (!zero) {
    pages.free_table(fault.task, deposited);
    count_huge_fallback(fault);
    return FaultResult::kFallback;
  }
  {
    Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
    if (pages.tree().get(pmd, fault.at).none()) {
      const std::uint64_t bits = Pte::kPresent | Pte::kUser | Pte::kYoung | Pte::kZero;
      pages.tree().deposit(pmd, fault.at, deposited);
      pages.tree().set(pmd, fault.at, Pte::leaf(*zero, bits));
      pages.note_huge_zero_page();
      fault.task.charge(pages.costs().pmd_set);
      return FaultResult::kDone;
    }
  }
  pages.free_table(fault.task, deposited);
  return FaultResult::kDone;
}

FaultResult do_huge_pmd_anonymous_page_inner(Fault& fault, Table& pmd, Pfn page) {
  PageTables& pages = fault.pages;
  Scope scope(fault.task, kDoHugePmdAnonymousPageInner);
  TablePage* deposited = pages.alloc_table(fault.task, pages.tree().pte_level());
  if (deposited == nullptr) {
    free_unmapped_huge_page(fault, page);
    return FaultResult::kOom;
  }
  clear_huge_page(fault.task, fault.kernel, page);
  {
    Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
    if (pages.tree().get(pmd, fault.at).none()) {
      pages.tree().deposit(pmd, fault.at, deposited);
      map_huge_page(fault, pmd, page);
      count_huge_alloc(fault);
      return FaultResult::kDone;
    }
  }
  // Another thread was faster: all the clearing was for nothing.
  pages.free_table(fault.task, deposited);
  free_unmapped_huge_page(fault, page);
  return FaultResult::kDone;
}

}  // namespace

// alloc_hugepage_direct_gfpmask(), vma_thp_gfp_mask().
GfpReclaim thp_gfp(const Kernel& kernel, const Vma& vma) {
  const bool advised = (vma.vm_flags & VM_HUGEPAGE) != 0;
  switch (kernel.config().thp_defrag) {
    case ThpDefrag::kAlways:
      return advised ? GfpReclaim::kDirect : GfpReclaim::kDirectNoretry;
    case ThpDefrag::kDefer:
      return GfpReclaim::kKswapd;
    case ThpDefrag::kDeferMadvise:
      return advised ? GfpReclaim::kDirect : GfpReclaim::kKswapd;
    case ThpDefrag::kMadvise:
      return advised ? GfpReclaim::kDirect : GfpReclaim::kNone;
    case ThpDefrag::kNever:
      break;
  }
  return GfpReclaim::kNone;
}

// alloc_pages_vma(), vma_alloc_folio(): the task's node first.  4.15 leaves it at that;
// later kernels go to other nodes if direct reclaim is allowed.
MaybePfn alloc_huge_page(Fault& fault) {
  fault.task.charge(fault.pages.costs().huge_page_alloc);
  fault.task.sync();
  AllocRequest request;
  request.order = fault.pages.geometry().pmd_order();
  request.preferred_node = fault.task.node();
  request.reclaim = thp_gfp(fault.kernel, fault.vma);
  const bool direct = request.reclaim == GfpReclaim::kDirect ||
                      request.reclaim == GfpReclaim::kDirectNoretry;
  AllocRequest local = request;
  local.this_node_only = true;
  if (direct && !fault.kernel.config().thp_strictly_local)
    local.reclaim = GfpReclaim::kDirectNoretry;
  if (const auto page = fault.kernel.phys().alloc_pages(local, fault.task.cpu()))
    return page;
  if (fault.kernel.config().thp_strictly_local || !direct) return std::nullopt;
  return fault.kernel.phys().alloc_pages(request, fault.task.cpu());
}

// count_vm_event(), count_mthp_stat()
void count_huge_alloc(Fault& fault) {
  ++fault.kernel.vmstat().thp_fault_alloc;
  ++fault.kernel.mm_shared()
        .mthp_stats[fault.pages.geometry().pmd_order()]
        .anon_fault_alloc;
}

void count_huge_fallback(Fault& fault) {
  ++fault.kernel.vmstat().thp_fault_fallback;
  ++fault.kernel.mm_shared()
        .mthp_stats[fault.pages.geometry().pmd_order()]
        .anon_fault_fallback;
}

// A huge page that nobody has mapped goes back.
void free_unmapped_huge_page(Fault& fault, Pfn page) {
  fault.task.charge(fault.pages.costs().huge_page_free);
  fault.task.sync();
  fault.kernel.phys().free_pages(page, fault.pages.geometry().pmd_order(),
                                 fault.task.cpu());
}

// set_huge_anon: map count, LRU, counters, the entry.  The PMD's lock is held.
void map_huge_page(Fault& fault, Table& pmd, Pfn page) {
  PageTables& pages = fault.pages;
  page_add_new_huge_rmap(fault.kernel, page,
                         fault.vma.linear_page_index(pages.pmd_range(fault.at).start,
                                                     pages.geometry().page_shift));
  fault.kernel.mm_shared().page_locks.added(fault.task, 1, true);
  if (fault.locked()) mark_mlocked(fault.kernel, page, true);
  std::uint64_t bits = Pte::kPresent | Pte::kUser | Pte::kYoung | Pte::kDirty;
  if ((fault.vma.vm_flags & VM_WRITE) != 0) bits |= Pte::kWrite;
  pages.tree().set(pmd, fault.at, Pte::leaf(page, bits));
  pages.rss_stat().add(fault.task, RssKind::kAnon,
                       static_cast<std::int64_t>(pages.geometry().pages_per_pmd()));
  fault.task.charge(pages.costs().pmd_set);
}

bool vma_thp_disabled(const Mm& mm, const Vma& vma) {
  return mm.thp_disabled && !(mm.thp_except_advised && (vma.vm_flags & VM_HUGEPAGE) != 0);
}

bool thp_possible(const Kernel& kernel, const Mm& mm, const Vma& vma) {
  if (!kernel.profile().geometry.has_thp || !vma.anonymous || vma_thp_disabled(mm, vma))
    return false;
  return (vma.vm_flags & (VM_NOHUGEPAGE | VM_HUGETLB | kVmSpecial | VM_SHARED)) == 0;
}

bool thp_allowed(const Kernel& kernel, const Mm& mm, const Vma& vma) {
  if (!thp_possible(kernel, mm, vma)) return false;
  switch (kernel.config().thp_enabled) {
    case ThpEnabled::kAlways:
      return true;
    case ThpEnabled::kMadvise:
      return (vma.vm_flags & VM_HUGEPAGE) != 0;
    case ThpEnabled::kNever:
      break;
  }
  return false;
}

FaultResult do_huge_pmd_anonymous_page(Fault& fault, Table& pmd) {
  Scope scope(fault.task, kDoHugePmdAnonymousPage);
  if (!fault.vma.range().contains(fault.pages.pmd_range(fault.at)))
    return FaultResult::kFallback;
  if (const FaultResult r = anon_vma_prepare(fault); r != FaultResult::kDone) return r;
  fault.pages.khugepaged_enter(fault.task);
  if (!fault.write() && fault.kernel.config().use_zero_page)
    return map_huge_zero_page(fault, pmd);
  const auto page = alloc_huge_page(fault);
  if (!page) {
    count_huge_fallback(fault);
    return FaultResult::kFallback;
  }
  return do_huge_pmd_anonymous_page_inner(fault, pmd, *page);
}

}  // namespace faultline::kernel
