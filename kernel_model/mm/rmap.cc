// SPDX-License-Identifier: Apache-2.0
//
// Map counts, references and the deferred-split rule.
//
// Two counts of a compound page live in its second and third struct page, as in the kernel:
// PMD mappings (compound_mapcount) and pieces mapped by PTEs (nr_pages_mapped).
#include "kernel_model/mm/rmap.h"

#include <algorithm>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

std::uint32_t& compound_mapcount_of(PhysMem& phys, Pfn head) {
  return phys.page({head.v + 1}).link;
}
std::uint32_t& nr_pages_mapped_of(PhysMem& phys, Pfn head) {
  return phys.page({head.v + 2}).link;
}

// Pieces carry state only from the first PMD split on: until then their struct pages are
// not touched.
bool has_pieces(PhysMem& phys, Pfn head) {
  return (phys.page({head.v + 1}).flags & Page::kTail) != 0;
}

// All pieces at once, each mapped once or not at all; the counts in the first ones stay.
void set_up_pieces(PhysMem& phys, Pfn head, std::uint16_t flags, std::int32_t mapcount) {
  Page& page = phys.page(head);
  const Page counts[] = {phys.page({head.v + 1}), phys.page({head.v + 2})};
  const Page piece{
      .flags = flags, .order = page.order, .node = page.node, .mapcount = mapcount};
  std::fill(&page + 1, &page + (std::size_t{1} << page.order),
            piece);  // the memory map is one array
  for (std::uint32_t i = 0; i < 2; ++i) {
    phys.page({head.v + 1 + i}).refcount = counts[i].refcount;
    phys.page({head.v + 1 + i}).link = counts[i].link;
  }
}

constexpr std::uint16_t kNewAnon =
    Page::kAnon | Page::kSwapbacked | Page::kLru | Page::kAnonExclusive;

// The index of a compound page, 64 bits in the reference counts that its pieces don't use.
void set_up_counts(PhysMem& phys, Pfn head, std::uint64_t index) {
  phys.page({head.v + 1}) =
      Page{.refcount = static_cast<std::int32_t>(index & 0xffff'ffff), .link = 0};
  phys.page({head.v + 2}) =
      Page{.refcount = static_cast<std::int32_t>(index >> 32), .link = 0};
}

std::int64_t pages_of(const Page& head) {
  return std::int64_t{1} << head.order;
}

// To 6.8 any unmapped piece queues the page, even the last one; from 6.12 only if others
// stay.
void queue_if_partial(Kernel& kernel, Pfn head, std::uint32_t still_mapped) {
  const bool any = kernel.config().deferred_split == DeferredSplitRule::kAnyUnmap;
  if (any || still_mapped > 0) queue_for_deferred_split(kernel, head);
}

void free_compound(Kernel& kernel, Pfn head, int cpu) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  const unsigned order = page.order;
  if ((page.flags & Page::kDeferredSplit) != 0)
    kernel.mm_shared().deferred_split.remove(head);
  FAULTLINE_CHECK_EQ(page.mapcount, 0);
  page.flags = 0;
  if (order > 0) {
    FAULTLINE_CHECK_EQ(nr_pages_mapped_of(phys, head), 0U);
    phys.page({head.v + 1}).flags =
        0;  // has_pieces; what else the pieces' flags say is stale
  }
  phys.free_pages(head, order, cpu);
}

}  // namespace

void queue_for_deferred_split(Kernel& kernel, Pfn head) {
  Page& page = kernel.phys().page(head);
  if ((page.flags & Page::kDeferredSplit) != 0) return;
  page.flags |= Page::kDeferredSplit;
  kernel.mm_shared().deferred_split.add(head);
  if (page.order == kernel.profile().geometry.pmd_order())
    ++kernel.vmstat().thp_deferred_split_page;
}

void page_add_new_anon_rmap(Kernel& kernel, Pfn pfn) {
  Page& page = kernel.phys().page(pfn);
  page.refcount = 1;
  page.mapcount = 1;
  page.order = 0;
  page.flags = kNewAnon;
  ++kernel.vmstat().nr_anon_pages;
}

void page_add_new_huge_rmap(Kernel& kernel, Pfn head, std::uint64_t index) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  page.refcount = 1;
  page.order = static_cast<std::uint8_t>(kernel.profile().geometry.pmd_order());
  page.flags = kNewAnon | Page::kHead;
  set_up_counts(phys, head, index);
  compound_mapcount_of(phys, head) = 1;
  kernel.vmstat().nr_anon_pages += pages_of(page);
  ++kernel.vmstat().nr_anon_transparent_hugepages;
}

void page_add_new_folio_rmap(Kernel& kernel, Pfn head, unsigned order,
                             std::uint64_t index) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  const auto pages = std::int32_t{1} << order;
  page.refcount = pages;
  page.mapcount = 1;
  page.order = static_cast<std::uint8_t>(order);
  page.flags = kNewAnon | Page::kHead;
  set_up_counts(phys, head, index);
  set_up_pieces(phys, head, Page::kAnon | Page::kTail | Page::kAnonExclusive, 1);
  nr_pages_mapped_of(phys, head) = static_cast<std::uint32_t>(pages);
  kernel.vmstat().nr_anon_pages += pages;
}

void page_dup_rmap_pte(Kernel& kernel, Pfn pfn) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(pfn);
  ++page.mapcount;
  page.flags &= static_cast<std::uint16_t>(~Page::kAnonExclusive);
  ++phys.page(compound_head(kernel, pfn)).refcount;
}

void page_dup_rmap_pmd(Kernel& kernel, Pfn head) {
  Page& page = kernel.phys().page(head);
  ++compound_mapcount_of(kernel.phys(), head);
  page.flags &= static_cast<std::uint16_t>(~Page::kAnonExclusive);
  ++page.refcount;
}

void page_split_pmd_rmap(Kernel& kernel, Pfn head, bool dirty) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  if (dirty) page.flags |= Page::kDirty;
  const std::uint32_t pages = 1U << page.order;
  const auto exclusive = static_cast<std::uint16_t>(page.flags & Page::kAnonExclusive);
  const auto flags = static_cast<std::uint16_t>(Page::kAnon | Page::kTail | exclusive);
  std::uint32_t newly_mapped = page.mapcount++ == 0 ? 1 : 0;
  if (!has_pieces(phys, head)) {
    set_up_pieces(phys, head, flags, 1);
    newly_mapped += pages - 1;
  } else {
    for (Page* piece = &page + 1; piece != &page + pages; ++piece) {
      newly_mapped += piece->mapcount++ == 0 ? 1 : 0;
      piece->flags = flags;
    }
  }
  nr_pages_mapped_of(phys, head) += newly_mapped;
  page.refcount += static_cast<std::int32_t>(pages) - 1;
  if (--compound_mapcount_of(phys, head) == 0)
    --kernel.vmstat().nr_anon_transparent_hugepages;
}

void page_remove_rmap_pte(Kernel& kernel, Pfn pfn) {
  page_remove_rmap_ptes(kernel, pfn, 1);
}

void page_remove_rmap_ptes(Kernel& kernel, Pfn first, std::uint64_t pages) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(first).flags & (Page::kHead | Page::kTail)) == 0) {
    FAULTLINE_CHECK_EQ(pages, std::uint64_t{1});
    if (--phys.page(first).mapcount == 0) --kernel.vmstat().nr_anon_pages;
    return;
  }
  const Pfn head = compound_head(kernel, first);
  std::uint32_t unmapped = 0;
  Page* const pieces = &phys.page(first);
  for (Page* piece = pieces; piece != pieces + pages; ++piece)
    unmapped += --piece->mapcount == 0 ? 1 : 0;
  std::uint32_t& mapped = nr_pages_mapped_of(phys, head);
  mapped -= unmapped;
  if (unmapped == 0 || compound_mapcount_of(phys, head) > 0) return;
  kernel.vmstat().nr_anon_pages -= unmapped;
  queue_if_partial(kernel, head, mapped);
}

void drop_piece(Kernel& kernel, Pfn pfn) {
  PhysMem& phys = kernel.phys();
  const Pfn head = compound_head(kernel, pfn);
  --phys.page(head).refcount;
  if (--phys.page(pfn).mapcount > 0) return;
  --nr_pages_mapped_of(phys, head);
  --kernel.vmstat().nr_anon_pages;
}

void page_remove_rmap_pmd(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if (--compound_mapcount_of(phys, head) > 0) return;
  --kernel.vmstat().nr_anon_transparent_hugepages;
  const std::uint32_t mapped = nr_pages_mapped_of(phys, head);
  kernel.vmstat().nr_anon_pages -= pages_of(phys.page(head)) - std::int64_t{mapped};
  if (mapped > 0 && mapped < pages_of(phys.page(head)))
    queue_for_deferred_split(kernel, head);
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

unsigned compound_order(Kernel& kernel, Pfn head) {
  return kernel.phys().page(head).order;
}

std::uint32_t compound_mapcount(Kernel& kernel, Pfn head) {
  const bool compound = (kernel.phys().page(head).flags & Page::kHead) != 0;
  return compound ? compound_mapcount_of(kernel.phys(), head) : 0;
}

std::int32_t max_mapcount(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(head).flags & Page::kHead) == 0) return phys.page(head).mapcount;
  std::int32_t most = 0;
  if (has_pieces(phys, head))
    for (std::uint32_t i = 0; i < 1U << phys.page(head).order; ++i)
      most = std::max(most, phys.page({head.v + i}).mapcount);
  return most + static_cast<std::int32_t>(compound_mapcount_of(phys, head));
}

void mark_mlocked(Kernel& kernel, Pfn head, bool locked) {
  Page& page = kernel.phys().page(head);
  if (locked)
    page.flags |= Page::kUnevictable;
  else
    page.flags &= static_cast<std::uint16_t>(~Page::kUnevictable);
}

bool is_exclusive(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(pfn).flags & Page::kAnonExclusive) != 0;
}

std::uint64_t page_index(Kernel& kernel, Pfn head) {
  const auto half = [&](std::uint32_t i) {
    return std::uint64_t{
        static_cast<std::uint32_t>(kernel.phys().page({head.v + i}).refcount)};
  };
  return half(1) | half(2) << 32;
}

std::int32_t total_mapcount(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(head).flags & Page::kHead) == 0) return phys.page(head).mapcount;
  auto total = static_cast<std::int32_t>(compound_mapcount_of(phys, head));
  if (has_pieces(phys, head))
    for (std::uint32_t i = 0; i < 1U << phys.page(head).order; ++i)
      total += phys.page({head.v + i}).mapcount;
  return total;
}

std::uint64_t break_up_compound(Kernel& kernel, Pfn head, int cpu) {
  PhysMem& phys = kernel.phys();
  const Page was = phys.page(head);
  if ((was.flags & Page::kDeferredSplit) != 0)
    kernel.mm_shared().deferred_split.remove(head);
  constexpr std::uint16_t kOwn =
      Page::kHead | Page::kTail | Page::kDeferredSplit | Page::kAnonExclusive;
  std::uint64_t freed = 0;
  for (std::uint32_t i = 0; i < 1U << was.order; ++i) {
    const Pfn pfn{head.v + i};
    Page& page = phys.page(pfn);
    const auto exclusive = static_cast<std::uint16_t>(page.flags & Page::kAnonExclusive);
    const std::int32_t mapcount = page.mapcount;
    page = Page{.flags = static_cast<std::uint16_t>((was.flags & ~kOwn) | exclusive),
                .node = was.node,
                .mapcount = mapcount,
                .refcount = mapcount};
    if (mapcount > 0) continue;
    page.flags = 0;
    phys.free_pages(pfn, 0, cpu);
    ++freed;
  }
  return freed;
}

bool is_lazyfree(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(compound_head(kernel, pfn)).flags & Page::kLazyfree) != 0;
}

}  // namespace faultline::kernel
