// SPDX-License-Identifier: Apache-2.0
//
// Runs of pages in an arena's chunks.
//
// A free run is the smallest that fits, and of those the one with the lowest address. What
// is over stays free. A run that is freed joins its neighbours if their pages are in the
// same state. A chunk that is one free run leaves the arena's books: one such is kept as
// the spare, the one before goes back to the store of chunks.  Everything here is done with
// the arena's lock held.
//
// Stands for: arena_run_*, arena_avail_*, arena_chunk_* (src/arena.c, jemalloc 3.3.1).
#pragma once

#include <algorithm>

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

// Nodes are map entries of free runs' first pages.
template <Platform P>
auto Jemalloc<P>::runs_avail(P& p, Addr arena) const {
  const auto less = [&p](Addr a, Addr b) {
    const std::uint64_t size_a = Bits{get(p, a + je::chunk::kEntryBits)}.size();
    const std::uint64_t size_b = Bits{get(p, b + je::chunk::kEntryBits)}.size();
    return size_a != size_b ? size_a < size_b : a < b;
  };
  return je::Tree<P, decltype(less)>(p, arena + je::arena::kRunsAvail,
                                     je::chunk::kEntryLink, less);
}

// Chunks with pages to give back, the most fragmented first: those with the most pairs of
// neighbouring free runs for their number of free runs.  Among equals the lowest, or of
// those without such pairs the highest, so that what is low is used again.
template <Platform P>
auto Jemalloc<P>::chunks_dirty(P& p, Addr arena) const {
  const auto less = [&p](Addr a, Addr b) {
    const std::uint64_t all_a = get(p, a + je::chunk::kRunsAvail),
                        all_b = get(p, b + je::chunk::kRunsAvail),
                        pairs_a = get(p, a + je::chunk::kRunsAdjacent),
                        pairs_b = get(p, b + je::chunk::kRunsAdjacent);
    const std::uint64_t whole_a = (all_a - pairs_a) * all_b,
                        whole_b = (all_b - pairs_b) * all_a;
    if (whole_a != whole_b) return whole_a < whole_b;
    return pairs_a != 0 ? a < b : a > b;
  };
  return je::Tree<P, decltype(less)>(p, arena + je::arena::kChunksDirty,
                                     je::chunk::kDirtyLink, less);
}

// Changes what the order of chunks depends on.
template <Platform P>
template <typename Change>
void Jemalloc<P>::reorder_dirty(P& p, Addr arena, Addr chunk, Change change) {
  const auto waits = [&](State s) {
    return get(p, chunk + je::chunk::kPagesIn + je::kWord * static_cast<unsigned>(s)) != 0;
  };
  const auto in_tree = [&] { return waits(State::kDirty) || waits(State::kMuzzy); };
  if (in_tree()) chunks_dirty(p, arena).erase(chunk);
  change();
  if (in_tree()) chunks_dirty(p, arena).insert(chunk);
}

// The page is free, in another state.
template <Platform P>
bool Jemalloc<P>::borders_free(P& p, Addr chunk, std::uint64_t page, State state) const {
  const Bits b = bits(p, chunk, page);
  return !b.allocated() && b.state() != state;
}

template <Platform P>
std::uint64_t Jemalloc<P>::free_neighbours(P& p, Addr chunk, std::uint64_t page,
                                           std::uint64_t pages, State state) const {
  std::uint64_t n = 0;
  if (page > geometry_.first_page) n += borders_free(p, chunk, page - 1, state) ? 1 : 0;
  if (page + pages < geometry_.chunk_pages)
    n += borders_free(p, chunk, page + pages, state) ? 1 : 0;
  return n;
}

template <Platform P>
void Jemalloc<P>::avail_insert(P& p, Addr arena, Addr chunk, std::uint64_t page,
                               std::uint64_t pages) {
  const State state = bits(p, chunk, page).state();
  const std::uint64_t offset = je::kWord * static_cast<unsigned>(state);
  reorder_dirty(p, arena, chunk, [&] {
    add(p, chunk + je::chunk::kRunsAdjacent, free_neighbours(p, chunk, page, pages, state));
    add(p, chunk + je::chunk::kRunsAvail, 1);
    add(p, chunk + je::chunk::kPagesIn + offset, pages);
  });
  add(p, arena + je::arena::kPages + offset, pages);
  runs_avail(p, arena).insert(geometry_.entry(chunk, page));
}

template <Platform P>
void Jemalloc<P>::avail_remove(P& p, Addr arena, Addr chunk, std::uint64_t page,
                               std::uint64_t pages) {
  const State state = bits(p, chunk, page).state();
  const std::uint64_t offset = je::kWord * static_cast<unsigned>(state);
  reorder_dirty(p, arena, chunk, [&] {
    add(p, chunk + je::chunk::kRunsAdjacent,
        0 - free_neighbours(p, chunk, page, pages, state));
    add(p, chunk + je::chunk::kRunsAvail, 0 - std::uint64_t{1});
    add(p, chunk + je::chunk::kPagesIn + offset, 0 - pages);
  });
  add(p, arena + je::arena::kPages + offset, 0 - pages);
  runs_avail(p, arena).erase(geometry_.entry(chunk, page));
}

// The spare, or a chunk from outside, for which the lock is let go.
template <Platform P>
Addr Jemalloc<P>::arena_chunk_alloc(P& p, Addr arena) {
  const std::uint64_t pages = geometry_.chunk_pages - geometry_.first_page;
  Addr c = get(p, arena + je::arena::kSpare);
  if (c != 0) {
    set(p, arena + je::arena::kSpare, 0);
  } else {
    bool zero = false;
    unlock_arena(p, arena);
    c = chunk_alloc(p, geometry_.chunk, geometry_.chunk, zero);
    lock_arena(p, arena);
    if (c == 0) return 0;
    set(p, c + je::chunk::kArena, arena);
    for (std::uint64_t at = je::chunk::kPagesIn; at < je::chunk::kMap; at += je::kWord)
      set(p, c + at, 0);
    const std::uint64_t unzeroed = zero ? 0 : Bits::kUnzeroed;
    const Bits all = Bits::free_run(geometry_.max_run, State::kClean, unzeroed);
    set_bits(p, c, geometry_.first_page, all);
    if (!zero)
      for (std::uint64_t i = 1; i + 1 < pages; ++i)
        set_bits(p, c, geometry_.first_page + i, {unzeroed});
    set_bits(p, c, geometry_.chunk_pages - 1, all);
  }
  avail_insert(p, arena, c, geometry_.first_page, pages);
  return c;
}

template <Platform P>
void Jemalloc<P>::arena_chunk_dealloc(P& p, Addr arena, Addr chunk) {
  avail_remove(p, arena, chunk, geometry_.first_page,
               geometry_.chunk_pages - geometry_.first_page);
  const Addr before = get(p, arena + je::arena::kSpare);
  set(p, arena + je::arena::kSpare, chunk);
  if (before == 0) return;
  unlock_arena(p, arena);
  chunk_dealloc(p, before, geometry_.chunk);
  lock_arena(p, arena);
}

// Pages that shall be zero: a clean run's are, unless their entries say otherwise.
template <Platform P>
void Jemalloc<P>::zero_run(P& p, Addr chunk, std::uint64_t page, std::uint64_t pages,
                           State state) {
  const auto address = [&](std::uint64_t i) { return chunk + (i << geometry_.page_shift); };
  if (state != State::kClean) {
    p.set(address(page), 0, pages << geometry_.page_shift);
    return;
  }
  for (std::uint64_t i = page; i < page + pages; ++i)
    if (bits(p, chunk, i).unzeroed()) p.set(address(i), 0, geometry_.page);
}

// What is left of a free run.
template <Platform P>
void Jemalloc<P>::stay_free(P& p, Addr arena, Addr chunk, std::uint64_t page,
                            std::uint64_t pages, State state) {
  for (const std::uint64_t i : {page, page + pages - 1}) {
    const std::uint64_t unzeroed =
        state == State::kDirty ? 0 : bits(p, chunk, i).raw & Bits::kUnzeroed;
    set_bits(p, chunk, i, Bits::free_run(pages << geometry_.page_shift, state, unzeroed));
  }
  avail_insert(p, arena, chunk, page, pages);
}

// Takes `size` bytes from the start of a free run.
template <Platform P>
void Jemalloc<P>::run_split(P& p, Addr arena, Addr run, std::uint64_t size, RunUse use) {
  const Addr chunk = geometry_.chunk_of(run);
  const std::uint64_t page = geometry_.page_in_chunk(run);
  const std::uint64_t need = size >> geometry_.page_shift;
  const Bits before = bits(p, chunk, page);
  const State state = before.state();
  const std::uint64_t total = before.size() >> geometry_.page_shift;
  const std::uint64_t rest = total - need;
  avail_remove(p, arena, chunk, page, total);
  add(p, arena + je::arena::kActive, need);
  if (state == State::kVolatile && use.unmark) unmark_volatile(p, run, size);
  if (use.zero) zero_run(p, chunk, page, need, state);
  const State now = state == State::kClean ? State::kClean : State::kDirty;
  const auto unzeroed = [&](std::uint64_t i) {
    return bits(p, chunk, i).raw & Bits::kUnzeroed;
  };
  if (use.large) {
    set_bits(p, chunk, page + need - 1,
             Bits::large_block(need == 1 ? size : 0, now, unzeroed(page + need - 1)));
    set_bits(p, chunk, page, Bits::large_block(size, now, unzeroed(page)));
  } else {
    for (std::uint64_t i = 0; i < need; ++i)
      set_bits(
          p, chunk, page + i,
          Bits::small_run(i << geometry_.page_shift, use.bin, now, unzeroed(page + i)));
  }
  if (rest != 0) stay_free(p, arena, chunk, page + need, rest, state);
}

template <Platform P>
Addr Jemalloc<P>::run_best_fit(P& p, Addr arena, std::uint64_t size, RunUse use) {
  const Addr entry = runs_avail(p, arena).first_not(
      [&](Addr e) { return Bits{get(p, e + je::chunk::kEntryBits)}.size() < size; });
  if (entry == 0) return 0;
  const Addr run = geometry_.page_of_entry(entry);
  run_split(p, arena, run, size, use);
  return run;
}

template <Platform P>
Addr Jemalloc<P>::run_alloc(P& p, Addr arena, std::uint64_t size, RunUse use) {
  const Frame frame(p, je::places::kRunAlloc);
  p.cycles(je::costs::kRun);
  if (const Addr run = run_best_fit(p, arena, size, use)) return run;
  if (const Addr chunk = arena_chunk_alloc(p, arena)) {
    const Addr run = chunk + (geometry_.first_page << geometry_.page_shift);
    run_split(p, arena, run, size, use);
    return run;
  }
  // Another thread may have freed enough while the lock was not held.
  return run_best_fit(p, arena, size, use);
}

// `dirty`: the caller has used it.  `cleaned`: it comes back from having been given back,
// into that state.
template <Platform P>
void Jemalloc<P>::run_dalloc(P& p, Addr arena, Addr run, bool dirty, State cleaned_to,
                             bool cleaned) {
  const Frame frame(p, je::places::kRunDalloc);
  p.cycles(je::costs::kRun);
  const Addr chunk = geometry_.chunk_of(run);
  std::uint64_t page = geometry_.page_in_chunk(run);
  const Bits before = bits(p, chunk, page);
  std::uint64_t size = before.large() ? before.size() : classes_[before.bin()].run;
  std::uint64_t pages = size >> geometry_.page_shift;
  add(p, arena + je::arena::kActive, 0 - pages);
  State state = cleaned_to;
  if (!cleaned)
    state = dirty || before.state() == State::kDirty ? State::kDirty : State::kClean;
  const auto mark = [&](std::uint64_t first, std::uint64_t count) {
    const std::uint64_t bytes = count << geometry_.page_shift;
    for (const std::uint64_t i : {first, first + count - 1}) {
      const std::uint64_t unzeroed =
          state == State::kDirty ? 0 : bits(p, chunk, i).raw & Bits::kUnzeroed;
      set_bits(p, chunk, i, Bits::free_run(bytes, state, unzeroed));
    }
  };
  mark(page, pages);
  const auto joins = [&](std::uint64_t i) {
    const Bits b = bits(p, chunk, i);
    return !b.allocated() && b.state() == state;
  };
  if (page + pages < geometry_.chunk_pages && joins(page + pages)) {
    p.cycles(je::costs::kCoalesce);
    const std::uint64_t more = bits(p, chunk, page + pages).size() >> geometry_.page_shift;
    avail_remove(p, arena, chunk, page + pages, more);
    pages += more;
    mark(page, pages);
  }
  if (page > geometry_.first_page && joins(page - 1)) {
    p.cycles(je::costs::kCoalesce);
    const std::uint64_t more = bits(p, chunk, page - 1).size() >> geometry_.page_shift;
    page -= more;
    avail_remove(p, arena, chunk, page, more);
    pages += more;
    mark(page, pages);
  }
  avail_insert(p, arena, chunk, page, pages);
  // First, so that an old spare is gone before the share of dirty pages is looked at.
  if (pages << geometry_.page_shift == geometry_.max_run)
    arena_chunk_dealloc(p, arena, chunk);
  if (state == State::kDirty) maybe_purge(p, arena);
}

}  // namespace faultline::alloc
