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
#include "kernel_model/mm/pte.h"
#include "kernel_model/mm/rmap_counts.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

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

std::uint16_t flags_of_piece(const Page& head) {
  return static_cast<std::uint16_t>(Page::kAnon | Page::kTail |
                                    (head.flags & Page::kAnonExclusive));
}

// What the bits say of a huge page's pieces goes to their struct pages.
void expand_pieces(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  HugePieces& bits = huge_pieces(kernel);
  Page& page = phys.page(head);
  set_up_pieces(phys, head, flags_of_piece(page), 0);
  for (std::uint32_t i = 0; i < 1U << page.order; ++i)
    if (bits.mapped({head.v + i})) phys.page({head.v + i}).mapcount = 1;
  bits.drop_bits(head);
}

// Its head, or a piece of it.
bool is_compound(Kernel& kernel, Pfn pfn) {
  return huge_pieces(kernel).covers(pfn) ||
         (kernel.phys().page(pfn).flags & (Page::kHead | Page::kTail)) != 0;
}

constexpr std::uint16_t kNewAnon =
    Page::kAnon | Page::kSwapbacked | Page::kLru | Page::kAnonExclusive;

// To 5.8 a new anonymous page is active from the start.
std::uint16_t new_anon_flags(const Kernel& kernel) {
  return kernel.config().anon_starts_active ? kNewAnon | Page::kActive : kNewAnon;
}

// lru_cache_add()
void add_new_to_lru(Kernel& kernel, Page& page, Pfn head) {
  if (kernel.config().anon_starts_active) page.flags |= Page::kActive;
  kernel.mm_shared().lrus.add(page, head);
}

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

MthpStat& mthp_stat(Kernel& kernel, const Page& head) {
  return kernel.mm_shared().mthp_stats[head.order];
}

void free_compound(Kernel& kernel, Pfn head, int cpu) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  const unsigned order = page.order;
  if (order > 0) forget_large_folio(kernel, head);
  FAULTLINE_CHECK_EQ(page.mapcount, 0);
  kernel.mm_shared().lrus.del(page, head);
  page.flags = 0;
  if (order > 0) {
    FAULTLINE_CHECK_EQ(nr_pages_mapped_of(phys, head), 0U);
    phys.page({head.v + 1}).flags =
        0;  // has_pieces; what else the pieces' flags say is stale
    if (huge_pieces(kernel).covers(head)) huge_pieces(kernel).remove_huge_page(head);
  }
  phys.free_pages(head, order, cpu);
}

// One more mapping of each piece; how many were not mapped before.
std::uint32_t map_every_piece(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  if (huge_pieces(kernel).has_bits(head)) expand_pieces(kernel, head);
  if (!has_pieces(phys, head)) set_up_pieces(phys, head, flags_of_piece(page), 0);
  std::uint32_t newly_mapped = page.mapcount++ == 0 ? 1 : 0;
  for (Page* piece = &page + 1; piece != &page + (1U << page.order); ++piece) {
    newly_mapped += piece->mapcount++ == 0 ? 1 : 0;
    piece->flags = flags_of_piece(page);
  }
  return newly_mapped;
}

// One mapping less of each; how many are no longer mapped.
std::uint32_t unmap_pieces(Kernel& kernel, Pfn first, Pfn head, std::uint64_t pages) {
  if (huge_pieces(kernel).has_bits(head)) {
    huge_pieces(kernel).unmap(first, pages);
    return static_cast<std::uint32_t>(pages);
  }
  std::uint32_t unmapped = 0;
  Page* const pieces = &kernel.phys().page(first);
  for (Page* piece = pieces; piece != pieces + pages; ++piece)
    unmapped += --piece->mapcount == 0 ? 1 : 0;
  return unmapped;
}

}  // namespace

void page_add_new_anon_rmap(Kernel& kernel, Pfn pfn) {
  page_add_new_anon_rmaps(kernel, &pfn, 1);
}

void page_add_new_anon_rmaps(Kernel& kernel, const Pfn* pages, std::uint32_t count) {
  PhysMem& phys = kernel.phys();
  Lru& lru = kernel.mm_shared().lrus;
  const std::uint16_t flags = new_anon_flags(kernel);
  for (const Pfn* pfn = pages; pfn != pages + count; ++pfn) {
    Page& page = phys.page(*pfn);
    page.refcount = 1;
    page.mapcount = 1;
    page.order = 0;
    page.flags = flags;
    lru.add(page, *pfn);
  }
  kernel.vmstat().nr_anon_pages += count;
}

void add_swap_cache_page(Kernel& kernel, Pfn pfn) {
  Page& page = kernel.phys().page(pfn);
  page.refcount = 1;
  page.mapcount = 0;
  page.order = 0;
  page.flags = (kNewAnon & ~Page::kAnonExclusive) | Page::kLru;
  kernel.mm_shared().lrus.add(page, pfn);
}

void page_add_anon_rmap_of_swap_cache(Kernel& kernel, Pfn pfn) {
  Page& page = kernel.phys().page(pfn);
  if (page.mapcount++ > 0) return;
  page.flags |= Page::kAnonExclusive;
  ++kernel.vmstat().nr_anon_pages;
  // activate_page(); from 5.9 on, as for new pages, it starts where it is.
  if (!kernel.config().anon_starts_active) return;
  page.flags |= Page::kActive;
  if ((page.flags & Page::kLru) != 0) kernel.mm_shared().lrus.move(page, pfn);
}

void page_add_new_huge_rmap(Kernel& kernel, Pfn head, std::uint64_t index) {
  PhysMem& phys = kernel.phys();
  Page& page = phys.page(head);
  page.refcount = 1;
  page.order = static_cast<std::uint8_t>(kernel.profile().geometry.pmd_order());
  page.flags = kNewAnon | Page::kHead;
  add_new_to_lru(kernel, page, head);
  set_up_counts(phys, head, index);
  huge_pieces(kernel).add_huge_page(head);
  compound_mapcount_of(phys, head) = 1;
  kernel.vmstat().nr_anon_pages += pages_of(page);
  ++kernel.vmstat().nr_anon_transparent_hugepages;
  ++mthp_stat(kernel, page).nr_anon;
  queue_as_underused(kernel, head);
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
  add_new_to_lru(kernel, page, head);
  set_up_counts(phys, head, index);
  set_up_pieces(phys, head, Page::kAnon | Page::kTail | Page::kAnonExclusive, 1);
  nr_pages_mapped_of(phys, head) = static_cast<std::uint32_t>(pages);
  kernel.vmstat().nr_anon_pages += pages;
  ++mthp_stat(kernel, page).nr_anon;
}

void page_dup_rmap_pte(Kernel& kernel, Pfn pfn) {
  Page& page = piece_of(kernel, pfn);
  ++page.mapcount;
  page.flags &= static_cast<std::uint16_t>(~Page::kAnonExclusive);
  ++kernel.phys().page(compound_head(kernel, pfn)).refcount;
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
  if (!has_pieces(phys, head) && compound_mapcount_of(phys, head) == 1) {
    huge_pieces(kernel).map_all(head);
    nr_pages_mapped_of(phys, head) = pages;
  } else {
    nr_pages_mapped_of(phys, head) += map_every_piece(kernel, head);
  }
  page.refcount += static_cast<std::int32_t>(pages) - 1;
  if (--compound_mapcount_of(phys, head) == 0)
    --kernel.vmstat().nr_anon_transparent_hugepages;
}

void page_remove_rmap_pte(Kernel& kernel, Pfn pfn) {
  page_remove_rmap_ptes(kernel, pfn, 1);
}

void page_remove_rmap_ptes(Kernel& kernel, Pfn first, std::uint64_t pages) {
  PhysMem& phys = kernel.phys();
  const Pfn head = compound_head(kernel, first);
  if ((phys.page(head).flags & Page::kHead) == 0) {
    FAULTLINE_CHECK_EQ(pages, std::uint64_t{1});
    if (--phys.page(first).mapcount == 0) --kernel.vmstat().nr_anon_pages;
    return;
  }
  const std::uint32_t unmapped = unmap_pieces(kernel, first, head, pages);
  std::uint32_t& mapped = nr_pages_mapped_of(phys, head);
  mapped -= unmapped;
  if (unmapped == 0 || compound_mapcount_of(phys, head) > 0) return;
  kernel.vmstat().nr_anon_pages -= unmapped;
  queue_if_partial(kernel, head, mapped);
}

std::uint64_t page_remove_rmap_run(Kernel& kernel, const Pte* entries, std::uint64_t most) {
  std::int64_t unmapped = 0;
  std::uint64_t n = 0;
  for (; n < most && entries[n].maps_anon(); ++n) {
    const Pfn pfn = entries[n].pfn();
    if (is_compound(kernel, pfn)) break;
    unmapped += --kernel.phys().page(pfn).mapcount == 0 ? 1 : 0;
  }
  kernel.vmstat().nr_anon_pages -= unmapped;
  return n;
}

void drop_piece(Kernel& kernel, Pfn pfn) {
  PhysMem& phys = kernel.phys();
  const Pfn head = compound_head(kernel, pfn);
  --phys.page(head).refcount;
  if (--piece_of(kernel, pfn).mapcount > 0) return;
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

std::uint64_t put_page_run(Kernel& kernel, const PageRefs* gone, std::uint64_t most,
                           int cpu) {
  PhysMem& phys = kernel.phys();
  Lru& lru = kernel.mm_shared().lrus;
  std::uint64_t n = 0;
  for (; n < most; ++n) {
    const Pfn pfn = gone[n].pfn;
    Page& page = phys.page(pfn);
    if (is_compound(kernel, pfn) ||
        page.refcount != static_cast<std::int32_t>(gone[n].refs))
      break;
    FAULTLINE_CHECK_EQ(page.mapcount, 0);
    page.refcount = 0;
    lru.del(page, pfn);
    page.flags = 0;
    phys.free_pages(pfn, 0, cpu);
  }
  return n;
}

Page& piece_of(Kernel& kernel, Pfn pfn) {
  const HugePieces& bits = huge_pieces(kernel);
  if (bits.has_bits(bits.head_of(pfn))) expand_pieces(kernel, bits.head_of(pfn));
  return kernel.phys().page(pfn);
}

Pfn compound_head(Kernel& kernel, Pfn pfn) {
  const HugePieces& huge = huge_pieces(kernel);
  if (huge.covers(pfn)) return huge.head_of(pfn);
  const Page& page = kernel.phys().page(pfn);
  if ((page.flags & Page::kTail) == 0) return pfn;
  return {pfn.v & ~((1U << page.order) - 1)};
}

unsigned compound_order(Kernel& kernel, Pfn head) {
  return kernel.phys().page(head).order;
}

void mark_mlocked(Kernel& kernel, Pfn head, bool locked) {
  Page& page = kernel.phys().page(head);
  if (locked)
    page.flags |= Page::kUnevictable;
  else
    page.flags &= static_cast<std::uint16_t>(~Page::kUnevictable);
  if ((page.flags & Page::kLru) != 0) kernel.mm_shared().lrus.move(page, head);
}

std::uint64_t break_up_compound(Kernel& kernel, Pfn head, int cpu) {
  PhysMem& phys = kernel.phys();
  if (huge_pieces(kernel).has_bits(head)) expand_pieces(kernel, head);
  if (huge_pieces(kernel).covers(head)) huge_pieces(kernel).remove_huge_page(head);
  const Page was = phys.page(head);
  forget_large_folio(kernel, head);
  constexpr std::uint16_t kOwn =
      Page::kHead | Page::kTail | Page::kDeferredSplit | Page::kAnonExclusive;
  const std::uint64_t index = page_index(kernel, head);
  Lru& lru = kernel.mm_shared().lrus;
  lru.split_head(head);
  Pfn behind = head;
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
    page.link = was.link;
    if (mapcount > 0) {
      lru.note_anon_index(pfn, index + i);
      if (i > 0 && lru.add_piece(page, pfn, behind)) behind = pfn;
      continue;
    }
    if (i == 0) {  // it marks the place of the others till they are there
      page.flags = 0;
      ++freed;
      continue;
    }
    page.flags = 0;
    phys.free_pages(pfn, 0, cpu);
    ++freed;
  }
  if (phys.page(head).mapcount == 0) {
    lru.del(phys.page(head), head);
    phys.free_pages(head, 0, cpu);
  }
  return freed;
}

}  // namespace faultline::kernel
