// SPDX-License-Identifier: Apache-2.0
//
// Map counts, references and the deferred-split rule.
//
// Two counts of a compound page live in its second and third struct page, as in the kernel: PMD
// mappings (compound_mapcount) and pieces mapped by PTEs (nr_pages_mapped).
#include "kernel_model/mm/rmap.h"

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

std::uint32_t& compound_mapcount_of(PhysMem& phys, Pfn head) { return phys.page({head.v + 1}).link; }
std::uint32_t& nr_pages_mapped_of(PhysMem& phys, Pfn head) { return phys.page({head.v + 2}).link; }

// Pieces carry state only from the first PMD split on: until then their struct pages are not touched.
bool has_pieces(PhysMem& phys, Pfn head) { return (phys.page({head.v + 1}).flags & Page::kTail) != 0; }

void set_up_pieces(PhysMem& phys, Pfn head) {
  const Page& page = phys.page(head);
  for (std::uint32_t i = 1; i < 1U << page.order; ++i) {
    Page& piece = phys.page({head.v + i});
    const std::uint32_t link = i <= 2 ? piece.link : 0;
    piece = Page{.flags = Page::kTail, .order = page.order, .node = page.node, .link = link};
  }
}

std::int64_t pages_of(const Page& head) { return std::int64_t{1} << head.order; }

void deferred_split_huge_page(Kernel& kernel, Pfn head) {
  Page& page = kernel.phys().page(head);
  if ((page.flags & Page::kDeferredSplit) != 0) return;
  page.flags |= Page::kDeferredSplit;
  kernel.mm_shared().deferred_split.add(head);
  if (page.order == kernel.profile().geometry.pmd_order()) ++kernel.vmstat().thp_deferred_split_page;
}

// To 6.8 any unmapped piece queues the page, even the last one; from 6.12 only if others stay.
void queue_if_partial(Kernel& kernel, Pfn head, std::uint32_t still_mapped) {
  const bool any = kernel.config().deferred_split == DeferredSplitRule::kAnyUnmap;
  if (any || still_mapped > 0) deferred_split_huge_page(kernel, head);
}

void free_compound(Kernel& kernel, Pfn head, int cpu) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  const unsigned order = page.order;
  if ((page.flags & Page::kDeferredSplit) != 0) kernel.mm_shared().deferred_split.remove(head);
  const std::uint32_t count = order > 0 && has_pieces(phys, head) ? 1U << order : 1U;
  for (std::uint32_t i = 0; i < count; ++i) {
    FAULTLINE_CHECK_EQ(phys.page({head.v + i}).mapcount, 0);
    phys.page({head.v + i}).flags = 0;
  }
  phys.free_pages(head, order, cpu);
}

}  // namespace

void page_add_new_anon_rmap(Kernel& kernel, Pfn pfn, unsigned order) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(pfn);
  page.refcount = 1;
  page.order = static_cast<std::uint8_t>(order);
  page.flags = Page::kAnon | Page::kSwapbacked | Page::kLru | Page::kAnonExclusive;
  kernel.vmstat().nr_anon_pages += pages_of(page);
  if (order == 0) {
    page.mapcount = 1;
    return;
  }
  page.flags |= Page::kHead;
  phys.page({pfn.v + 1}) = Page{.link = 1};    // compound_mapcount
  phys.page({pfn.v + 2}) = Page{.link = 0};    // nr_pages_mapped
  ++kernel.vmstat().nr_anon_transparent_hugepages;
}

void page_split_pmd_rmap(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  const std::uint32_t pages = 1U << page.order;
  const auto exclusive = static_cast<std::uint16_t>(page.flags & Page::kAnonExclusive);
  if (!has_pieces(phys, head)) set_up_pieces(phys, head);
  std::uint32_t& mapped = nr_pages_mapped_of(phys, head);
  for (std::uint32_t i = 0; i < pages; ++i) {
    Page& piece = phys.page({head.v + i});
    if (piece.mapcount++ == 0) ++mapped;
    if (i > 0) piece.flags = static_cast<std::uint16_t>(Page::kAnon | Page::kTail | exclusive);
  }
  page.refcount += static_cast<std::int32_t>(pages) - 1;
  if (--compound_mapcount_of(phys, head) == 0) --kernel.vmstat().nr_anon_transparent_hugepages;
}

void page_remove_rmap_pte(Kernel& kernel, Pfn pfn) { page_remove_rmap_ptes(kernel, pfn, 1); }

void page_remove_rmap_ptes(Kernel& kernel, Pfn first, std::uint64_t pages) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(first).flags & (Page::kHead | Page::kTail)) == 0) {
    FAULTLINE_CHECK_EQ(pages, std::uint64_t{1});
    if (--phys.page(first).mapcount == 0) --kernel.vmstat().nr_anon_pages;
    return;
  }
  const Pfn head = compound_head(kernel, first);
  std::uint32_t unmapped = 0;
  for (std::uint32_t i = 0; i < pages; ++i)
    if (--phys.page({first.v + i}).mapcount == 0) ++unmapped;
  std::uint32_t& mapped = nr_pages_mapped_of(phys, head);
  mapped -= unmapped;
  if (unmapped == 0 || compound_mapcount_of(phys, head) > 0) return;
  kernel.vmstat().nr_anon_pages -= unmapped;
  queue_if_partial(kernel, head, mapped);
}

void page_remove_rmap_pmd(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if (--compound_mapcount_of(phys, head) > 0) return;
  --kernel.vmstat().nr_anon_transparent_hugepages;
  const std::uint32_t mapped = nr_pages_mapped_of(phys, head);
  kernel.vmstat().nr_anon_pages -= pages_of(phys.page(head)) - std::int64_t{mapped};
  if (mapped > 0) deferred_split_huge_page(kernel, head);
}

std::uint64_t put_page(Kernel& kernel, Pfn pfn, int cpu, std::uint32_t refs) {
  const Pfn head = compound_head(kernel, pfn);
  Page& page = kernel.phys().page(head);
  page.refcount -= static_cast<std::int32_t>(refs);
  FAULTLINE_CHECK_GE(page.refcount, 0);
  if (page.refcount > 0) return 0;
  const std::uint64_t pages = std::uint64_t{1} << page.order;
  free_compound(kernel, head, cpu);
  return pages;
}

Pfn compound_head(Kernel& kernel, Pfn pfn) {
  const Page& page = kernel.phys().page(pfn);
  if ((page.flags & Page::kTail) == 0) return pfn;
  return {pfn.v & ~((1U << page.order) - 1)};
}

unsigned compound_order(Kernel& kernel, Pfn head) { return kernel.phys().page(head).order; }

std::uint32_t compound_mapcount(Kernel& kernel, Pfn head) {
  const bool compound = (kernel.phys().page(head).flags & Page::kHead) != 0;
  return compound ? compound_mapcount_of(kernel.phys(), head) : 0;
}

bool is_lazyfree(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(compound_head(kernel, pfn)).flags & Page::kLazyfree) != 0;
}

}  // namespace faultline::kernel
