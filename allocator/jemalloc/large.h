// SPDX-License-Identifier: Apache-2.0
//
// Large blocks: a run of whole pages each, up to what a chunk holds.
//
// Stands for: arena_malloc_large, arena_palloc, arena_dalloc_large, arena_ralloc_large,
// arena_run_trim_head, arena_run_trim_tail (src/arena.c, jemalloc 3.3.1).
#pragma once

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

// The first `size - new_size` bytes of a large block become free.
template <Platform P>
void Jemalloc<P>::run_trim_head(P& p, Addr arena, Addr run, std::uint64_t size,
                                std::uint64_t new_size) {
  const Addr chunk = geometry_.chunk_of(run);
  const std::uint64_t page = geometry_.page_in_chunk(run);
  const std::uint64_t head = (size - new_size) >> geometry_.page_shift;
  const State state = bits(p, chunk, page).state();
  const auto unzeroed = [&](std::uint64_t i) {
    return bits(p, chunk, i).raw & Bits::kUnzeroed;
  };
  set_bits(p, chunk, page + head - 1,
           Bits::large_block(0, state, unzeroed(page + head - 1)));
  set_bits(p, chunk, page, Bits::large_block(size - new_size, state, unzeroed(page)));
  set_bits(p, chunk, page + head,
           Bits::large_block(new_size, state, unzeroed(page + head)));
  run_dalloc(p, arena, run, false, State::kClean);
}

// All but the first `new_size` bytes of a large block become free.
template <Platform P>
void Jemalloc<P>::run_trim_tail(P& p, Addr arena, Addr run, std::uint64_t size,
                                std::uint64_t new_size, bool dirty) {
  const Addr chunk = geometry_.chunk_of(run);
  const std::uint64_t page = geometry_.page_in_chunk(run);
  const std::uint64_t kept = new_size >> geometry_.page_shift;
  const State state = bits(p, chunk, page).state();
  const auto unzeroed = [&](std::uint64_t i) {
    return bits(p, chunk, i).raw & Bits::kUnzeroed;
  };
  set_bits(p, chunk, page + kept - 1,
           Bits::large_block(kept == 1 ? new_size : 0, state, unzeroed(page + kept - 1)));
  set_bits(p, chunk, page, Bits::large_block(new_size, state, unzeroed(page)));
  set_bits(p, chunk, page + kept,
           Bits::large_block(size - new_size, state, unzeroed(page + kept)));
  run_dalloc(p, arena, run + new_size, dirty, State::kClean);
}

// arena_malloc_large(): whole pages.
template <Platform P>
Addr Jemalloc<P>::large_alloc(P& p, Addr arena, std::uint64_t size, bool zero) {
  lock_arena(p, arena);
  const Addr run = run_alloc(p, arena, size, {.zero = zero});
  decay_tick(p, arena);
  unlock_arena(p, arena);
  return run;
}

// arena_palloc(): cut from a run that is as much longer as the alignment may cost.  Model:
// of a volatile run the vrange port asks again only for what it keeps.
template <Platform P>
Addr Jemalloc<P>::large_aligned(P& p, Addr arena, std::uint64_t size,
                                std::uint64_t alignment) {
  const std::uint64_t larger = size + alignment - geometry_.page;
  lock_arena(p, arena);
  Addr run = run_alloc(p, arena, larger, {});
  if (run == 0) {
    unlock_arena(p, arena);
    return 0;
  }
  const std::uint64_t lead = ((run + alignment - 1) & ~(alignment - 1)) - run;
  const std::uint64_t trail = larger - lead - size;
  if (lead != 0) {
    run_trim_head(p, arena, run, larger, larger - lead);
    run += lead;
  }
  if (trail != 0) run_trim_tail(p, arena, run, size + trail, size, false);
  decay_tick(p, arena);
  unlock_arena(p, arena);
  return run;
}

template <Platform P>
void Jemalloc<P>::large_dalloc(P& p, Addr mem, std::uint64_t) {
  const Addr arena = get(p, geometry_.chunk_of(mem) + je::chunk::kArena);
  lock_arena(p, arena);
  run_dalloc(p, arena, mem, true, State::kClean);
  decay_tick(p, arena);
  unlock_arena(p, arena);
}

// arena_ralloc_large(): where it is, if that is possible.
template <Platform P>
bool Jemalloc<P>::large_resize(P& p, Addr mem, std::uint64_t old_size, std::uint64_t size) {
  if (size == old_size) return true;
  const Addr chunk = geometry_.chunk_of(mem);
  const Addr arena = get(p, chunk + je::chunk::kArena);
  const std::uint64_t page = geometry_.page_in_chunk(mem);
  const std::uint64_t pages = old_size >> geometry_.page_shift;
  lock_arena(p, arena);
  bool done = size < old_size;
  if (done) {
    run_trim_tail(p, arena, mem, old_size, size, true);
  } else if (page + pages < geometry_.chunk_pages) {
    const Bits after = bits(p, chunk, page + pages);
    done = !after.allocated() && after.size() >= size - old_size;
    if (done) {
      run_split(p, arena, mem + old_size, size - old_size, {});
      const Bits own = bits(p, chunk, page);
      const State state = own.state() == State::kDirty ||
                                  bits(p, chunk, page + pages).state() == State::kDirty
                              ? State::kDirty
                              : State::kClean;
      const std::uint64_t last = page + (size >> geometry_.page_shift) - 1;
      set_bits(p, chunk, page, Bits::large_block(size, state, own.raw & Bits::kUnzeroed));
      set_bits(p, chunk, last,
               Bits::large_block(0, state, bits(p, chunk, last).raw & Bits::kUnzeroed));
    }
  }
  unlock_arena(p, arena);
  return done;
}

}  // namespace faultline::alloc
