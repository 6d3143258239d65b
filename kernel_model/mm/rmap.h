// SPDX-License-Identifier: Apache-2.0
//
// The state of anonymous pages: who maps them, who holds them, when they are freed.
//
// A page is freed when its last reference goes.  Each mapping holds one: a base page's
// mapping one of the page, each mapping of a piece of a compound page (PMD or PTE) one of
// its head.  So a huge page of which one piece is still mapped stays whole: it can only be
// queued for a deferred split.
//
// Stands for: page_add_new_anon_rmap(), page_remove_rmap() (mm/rmap.c), put_page(), and the
// mapping part of __split_huge_pmd_locked() (mm/huge_memory.c), v4.15-6.18.
#pragma once

#include <cstdint>

#include "kernel_model/types.h"

namespace faultline::kernel {

class Kernel;
class Pte;
struct Page;

// A fresh base page, mapped by one PTE.
void page_add_new_anon_rmap(Kernel& kernel, Pfn pfn);
// The same of several, in this order.
void page_add_new_anon_rmaps(Kernel& kernel, const Pfn* pages, std::uint32_t count);
// A page that has been read from swap, which nobody maps yet: it goes on the LRU.
void add_swap_cache_page(Kernel& kernel, Pfn pfn);
// page_add_anon_rmap() of a page that was in the swap cache and on the LRU: the cache's
// reference is the mapping's now.
void page_add_anon_rmap_of_swap_cache(Kernel& kernel, Pfn pfn);
// A fresh huge page, mapped by one PMD; `index` is where its first base page lies in its
// anonymous mapping (linear_page_index()).
void page_add_new_huge_rmap(Kernel& kernel, Pfn head, std::uint64_t index);
// A fresh large folio whose pages are each mapped by one PTE.
void page_add_new_folio_rmap(Kernel& kernel, Pfn head, unsigned order, std::uint64_t index);
// One more mapping, by fork: of a base page or piece, or of a huge page by a PMD.  The page
// is no longer anybody's alone.
void page_dup_rmap_pte(Kernel& kernel, Pfn pfn);
void page_dup_rmap_pmd(Kernel& kernel, Pfn head);
// A huge page's PMD mapping becomes one PTE mapping of each of its pages.
void page_split_pmd_rmap(Kernel& kernel, Pfn head, bool dirty);
// The PTE mapping of a base page, or of one piece of a compound page, goes.
void page_remove_rmap_pte(Kernel& kernel, Pfn pfn);
// `pages` PTE mappings of consecutive pieces of one compound page go together (folio
// batching, 6.9+).
void page_remove_rmap_ptes(Kernel& kernel, Pfn first, std::uint64_t pages);
// The mappings go that these entries are, up to the first of `most` that maps no anonymous
// page or a piece of a compound one; answers how many.
std::uint64_t page_remove_rmap_run(Kernel& kernel, const Pte* entries, std::uint64_t most);
// A piece's PTE mapping and its reference go while the page is being split: nothing is
// queued.
void drop_piece(Kernel& kernel, Pfn pfn);
// The PMD mapping of a huge page goes.
void page_remove_rmap_pmd(Kernel& kernel, Pfn head);

// deferred_split_huge_page(): a part of it is unmapped.  Nothing if that is known already.
void queue_for_deferred_split(Kernel& kernel, Pfn head);
// deferred_split_folio(folio, false) (6.12): a new huge page, which may turn out to hold
// little but zeros.
void queue_as_underused(Kernel& kernel, Pfn head);
// folio_undo_deferred_split(): it is freed or becomes single pages.
void forget_large_folio(Kernel& kernel, Pfn head);

// References go; the page (or its whole compound page) is freed with the last.  Answers how
// many base pages were freed.  The caller has synchronised.
std::uint64_t put_page(Kernel& kernel, Pfn pfn, int cpu, std::uint32_t refs = 1);

// References of one page (or compound page) that go together.
struct PageRefs {
  Pfn pfn;
  std::uint32_t refs;
};
// Pages that go with these references, up to the first of `most` that is held by others,
// too, or is compound; answers how many.
std::uint64_t put_page_run(Kernel& kernel, const PageRefs* gone, std::uint64_t most,
                           int cpu);

// The struct page of a base page or of a piece of a huge page, with what it says of itself
// set up; `phys().page()` is right for heads and base pages only.
[[nodiscard]] Page& piece_of(Kernel& kernel, Pfn pfn);

// mlock_page(), munlock_page(): off and on the LRU that reclaim looks at.
void mark_mlocked(Kernel& kernel, Pfn head, bool locked);
// PageAnonExclusive: only this mapping of the page exists, as far as forks are concerned.
[[nodiscard]] bool is_exclusive(Kernel& kernel, Pfn pfn);
[[nodiscard]] std::uint64_t page_index(Kernel& kernel, Pfn head);
// total_mapcount(): PTE mappings of all pieces and PMD mappings.
[[nodiscard]] std::int32_t total_mapcount(Kernel& kernel, Pfn head);
// __split_huge_page(): a compound page with no PMD mapping becomes single pages, each with
// the state and the references of its own mappings; unmapped ones are freed.  Answers how
// many were.
std::uint64_t break_up_compound(Kernel& kernel, Pfn head, int cpu);
[[nodiscard]] Pfn compound_head(Kernel& kernel, Pfn pfn);
[[nodiscard]] unsigned compound_order(Kernel& kernel, Pfn head);
// PMD mappings of a compound page (compound_mapcount).
[[nodiscard]] std::uint32_t compound_mapcount(Kernel& kernel, Pfn head);
// PTE mappings of a base page or of one piece of a compound page (_mapcount).
[[nodiscard]] std::int32_t pte_mapcount(Kernel& kernel, Pfn pfn);
// folio_precise_page_mapcount(): mappings, by PTE or PMD, of this one piece.
[[nodiscard]] std::int32_t page_mapcount(Kernel& kernel, Pfn head, Pfn pfn);
// page_trans_huge_mapcount(): how often the most mapped of its base pages is mapped.
[[nodiscard]] std::int32_t max_mapcount(Kernel& kernel, Pfn head);
// PageDirty of the compound page: what a PTE's dirty bit becomes when it goes.
[[nodiscard]] bool page_dirty(Kernel& kernel, Pfn pfn);
[[nodiscard]] bool is_lazyfree(Kernel& kernel, Pfn pfn);

}  // namespace faultline::kernel
