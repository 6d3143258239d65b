// SPDX-License-Identifier: Apache-2.0
//
// Writes to a huge page that is mapped read-only: the huge zero page, one shared by fork,
// one that mprotect made read-only.
//
// Stands for: do_huge_pmd_wp_page(), do_huge_pmd_wp_page_fallback(), do_huge_zero_wp_pmd(),
// huge_pmd_set_accessed() (mm/huge_memory.c, v4.15-6.18).
#include <vector>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/huge_fault.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDoHugePmdWpPage{"do_huge_pmd_wp_page", true};
constexpr Centre kDoHugePmdWpPageFallback{"do_huge_pmd_wp_page_fallback", true};
constexpr Centre kDoHugeZeroWpPmd{"do_huge_zero_wp_pmd", true};

// The first write to a huge zero page: 4.15 and 6.18 give the range a huge page of its own.
FaultResult do_huge_zero_wp_pmd(Fault& fault, Table& pmd, Pte entry) {
  PageTables& pages = fault.pages;
  Scope scope(fault.task, kDoHugeZeroWpPmd);
  if (const FaultResult r = anon_vma_prepare(fault); r != FaultResult::kDone) return r;
  const auto page = thp_allowed(fault.kernel, fault.mm, fault.vma) ? alloc_huge_page(fault)
                                                                   : std::nullopt;
  if (!page) {
    count_huge_fallback(fault);
    return FaultResult::kFallback;
  }
  clear_huge_page(fault.task, fault.kernel, *page);
  {
    Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
    if (pages.tree().get(pmd, fault.at).raw() == entry.raw()) {
      flush_tlb_range(fault.task, pages, pages.pmd_range(fault.at),
                      pages.geometry().pmd_size());
      map_huge_page(fault, pmd, *page);
      count_huge_alloc(fault);
      return FaultResult::kDone;
    }
  }
  free_unmapped_huge_page(fault, *page);
  return FaultResult::kDone;
}

// reuse_swap_page() (to 5.18), then PageAnonExclusive or the only reference.
bool can_reuse_huge(Kernel& kernel, Pfn head) {
  if (kernel.config().cow_reuse != CowReuse::kExclusive)
    return max_mapcount(kernel, head) == 1;
  const Page& page = kernel.phys().page(head);
  return (page.flags & Page::kAnonExclusive) != 0 || page.refcount == 1;
}

// Nobody else maps the huge page: it becomes writable where it is.
bool reuse_huge_page(Fault& fault, Table& pmd, Pte entry) {
  PageTables& pages = fault.pages;
  Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
  const Pte now = pages.tree().get(pmd, fault.at);
  if (now.raw() != entry.raw()) return true;  // changed meanwhile: fault again
  Page& head = fault.kernel.phys().page(entry.pfn());
  if (!can_reuse_huge(fault.kernel, entry.pfn())) return false;
  head.flags |= Page::kAnonExclusive;
  pages.tree().set(pmd, fault.at, now.with(Pte::kWrite | Pte::kDirty | Pte::kYoung));
  fault.task.charge(pages.costs().pmd_set);
  return true;
}

// The mapping of the old page goes; the caller drops its reference without the lock.
void unmap_old(Fault& fault, Pfn old) {
  page_remove_rmap_pmd(fault.kernel, old);
  fault.pages.rss_stat().add(
      fault.task, RssKind::kAnon,
      -static_cast<std::int64_t>(fault.pages.geometry().pages_per_pmd()));
}

void put_old(Fault& fault, Pfn old) {
  fault.task.sync();
  put_page(fault.kernel, old, fault.task.cpu());
}

// 4.15 copies the whole huge page into another one.
FaultResult copy_to_huge_page(Fault& fault, Table& pmd, Pte entry, Pfn page) {
  PageTables& pages = fault.pages;
  count_huge_alloc(fault);
  copy_pages(fault.task, fault.kernel, entry.pfn(), page, pages.geometry().pmd_size());
  {
    Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
    if (pages.tree().get(pmd, fault.at).raw() != entry.raw()) {
      lock.unlock();
      free_unmapped_huge_page(fault, page);
      return FaultResult::kDone;
    }
    flush_tlb_range(fault.task, pages, pages.pmd_range(fault.at),
                    pages.geometry().pmd_size());
    unmap_old(fault, entry.pfn());
    map_huge_page(fault, pmd, page);
  }
  put_old(fault, entry.pfn());
  return FaultResult::kDone;
}

void free_base_pages(Fault& fault, const std::vector<Pfn>& copies) {
  fault.task.charge(fault.pages.costs().page_free *
                    static_cast<std::int64_t>(copies.size()));
  fault.task.sync();
  for (const Pfn page : copies) fault.kernel.phys().free_pages(page, 0, fault.task.cpu());
}

// One base page for each of the huge page's, copied; fewer without memory.
std::vector<Pfn> copy_to_base_pages(Fault& fault, Pte entry) {
  const std::uint64_t count = fault.pages.geometry().pages_per_pmd();
  std::vector<Pfn> copies;
  for (std::uint64_t i = 0; i < count; ++i) {
    fault.task.charge(fault.pages.costs().page_alloc);
    fault.task.sync();
    AllocRequest request;
    request.preferred_node = fault.task.node();
    const auto page = fault.kernel.phys().alloc_pages(request, fault.task.cpu());
    if (!page) break;
    copies.push_back(*page);
    copy_pages(fault.task, fault.kernel, entry.at_subpage(i).pfn(), *page,
               fault.pages.geometry().page_size());
  }
  return copies;
}

// do_huge_pmd_wp_page_fallback(): without a huge page 4.15 still copies the whole range.
FaultResult copy_range(Fault& fault, Table& pmd, Pte entry) {
  Scope scope(fault.task, kDoHugePmdWpPageFallback);
  PageTables& pages = fault.pages;
  const std::vector<Pfn> copies = copy_to_base_pages(fault, entry);
  if (copies.size() < pages.geometry().pages_per_pmd()) {
    free_base_pages(fault, copies);
    return FaultResult::kOom;
  }
  Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
  if (pages.tree().get(pmd, fault.at).raw() != entry.raw()) {
    lock.unlock();
    free_base_pages(fault, copies);
    return FaultResult::kDone;
  }
  flush_tlb_range(fault.task, pages, pages.pmd_range(fault.at),
                  pages.geometry().pmd_size());
  unmap_old(fault, entry.pfn());
  pages.replace_huge_pmd(fault.task, pmd, fault.at, copies,
                         entry.with(Pte::kWrite | Pte::kDirty));
  lock.unlock();
  put_old(fault, entry.pfn());
  return FaultResult::kDone;
}

// A huge page that others map, too, is written (to 5.7).
FaultResult copy_huge_page(Fault& fault, Table& pmd, Pte entry) {
  const auto page = thp_allowed(fault.kernel, fault.mm, fault.vma) ? alloc_huge_page(fault)
                                                                   : std::nullopt;
  if (page) return copy_to_huge_page(fault, pmd, entry, *page);
  count_huge_fallback(fault);
  return copy_range(fault, pmd, entry);
}

}  // namespace

FaultResult huge_pmd_set_accessed(Fault& fault, Table& pmd, Pte entry) {
  if (entry.has_all(fault.accessed_bits())) return FaultResult::kDone;
  PageTables& pages = fault.pages;
  Ptl lock(fault.task, pages, pages.pmd_lock_page(pmd));
  if (pages.tree().get(pmd, fault.at).raw() == entry.raw()) {
    pages.tree().set(pmd, fault.at, entry.with(fault.accessed_bits()));
    fault.task.charge(pages.costs().pmd_set);
  }
  return FaultResult::kDone;
}

FaultResult do_huge_pmd_wp_page(Fault& fault, Table& pmd, Pte entry) {
  Scope scope(fault.task, kDoHugePmdWpPage);
  if (entry.zero_page()) {
    if (fault.kernel.config().zero_pmd_write == ZeroPmdWrite::kAllocThp) {
      const FaultResult result = do_huge_zero_wp_pmd(fault, pmd, entry);
      if (result != FaultResult::kFallback) return result;
    }
  } else if (reuse_huge_page(fault, pmd, entry)) {
    return FaultResult::kDone;
  } else if (fault.kernel.config().cow_huge == ZeroPmdWrite::kAllocThp) {
    return copy_huge_page(fault, pmd, entry);
  }
  fault.pages.split_huge_pmd(fault.task, fault.at);
  return FaultResult::kFallback;
}

}  // namespace faultline::kernel
