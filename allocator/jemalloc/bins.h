// SPDX-License-Identifier: Apache-2.0
//
// Regions of one size: a bin of an arena has a run that it cuts from at present and a tree
// of others that have room, lowest address first.
//
// A run begins with a head and a bitmap of its free regions; the lowest free one is taken.
// A run that is all free goes back to the arena, and what it never touched stays clean.
//
// Stands for: arena_tcache_fill_small, arena_bin_*, arena_run_reg_*, arena_dalloc_bin
// (src/arena.c, jemalloc 3.3.1).
#pragma once

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

// Nodes are map entries of the runs' first pages.
template <Platform P>
auto Jemalloc<P>::bin_runs(P& p, Addr bin_address) const {
  const auto less = [](Addr a, Addr b) { return a < b; };
  return je::Tree<P, decltype(less)>(p, bin_address + je::bin::kRuns, je::chunk::kEntryLink,
                                     less);
}

// The run has a free region.
template <Platform P>
Addr Jemalloc<P>::region_alloc(P& p, Addr run, const je::BinInfo& info) {
  p.cycles(je::costs::kRegion);
  Addr word = run + je::run::kBitmap;
  std::uint64_t free = get(p, word);
  while (free == 0) {
    word += je::kWord;
    free = get(p, word);
  }
  const auto bit = static_cast<unsigned>(std::countr_zero(free));
  set(p, word, free & (free - 1));
  const auto index = static_cast<std::uint32_t>((word - run - je::run::kBitmap) * 8 + bit);
  if (get32(p, run + je::run::kNextIndex) == index)
    set32(p, run + je::run::kNextIndex, index + 1);
  set32(p, run + je::run::kFree, get32(p, run + je::run::kFree) - 1);
  return run + info.first + info.region * index;
}

// The bin's lock is held.
template <Platform P>
Addr Jemalloc<P>::bin_malloc(P& p, Addr arena, unsigned bin) {
  const Addr b = bin_at(arena, bin);
  const Addr run = get(p, b + je::bin::kRunCurrent);
  if (run != 0 && get32(p, run + je::run::kFree) > 0)
    return region_alloc(p, run, classes_[bin]);
  return bin_malloc_hard(p, arena, bin);
}

template <Platform P>
Addr Jemalloc<P>::bin_malloc_hard(P& p, Addr arena, unsigned bin) {
  const Addr b = bin_at(arena, bin);
  const je::BinInfo& info = classes_[bin];
  set(p, b + je::bin::kRunCurrent, 0);
  const Addr run = nonfull_run(p, arena, bin);
  const Addr current = get(p, b + je::bin::kRunCurrent);
  if (current != 0 && get32(p, current + je::run::kFree) > 0) {
    // Another thread made a run current while the lock was not held.
    const Addr mem = region_alloc(p, current, info);
    if (run == 0) return mem;
    if (get32(p, run + je::run::kFree) == info.regions)
      dalloc_bin_run(p, arena, run, bin);
    else
      lower_run(p, b, run);
    return mem;
  }
  if (run == 0) return 0;
  set(p, b + je::bin::kRunCurrent, run);
  return region_alloc(p, run, info);
}

// arena_bin_nonfull_run_get(): the lowest that has room, else a new one, for which the
// bin's lock is let go.
template <Platform P>
Addr Jemalloc<P>::nonfull_run(P& p, Addr arena, unsigned bin) {
  const Addr b = bin_at(arena, bin);
  const je::BinInfo& info = classes_[bin];
  const auto lowest = [&]() -> Addr {
    const Addr entry = bin_runs(p, b).first();
    if (entry == 0) return 0;
    bin_runs(p, b).erase(entry);
    return geometry_.page_of_entry(entry);
  };
  if (const Addr found = lowest()) return found;
  unlock(p, b + je::bin::kLock, kBinLockName);
  lock_arena(p, arena);
  const Addr run = run_alloc(p, arena, info.run, {.large = false, .bin = bin});
  if (run != 0) {
    set(p, run + je::run::kBin, b);
    set32(p, run + je::run::kNextIndex, 0);
    set32(p, run + je::run::kFree, info.regions);
    for (std::uint32_t i = 0; i < info.bitmap_words; ++i) {
      const std::uint32_t rest = info.regions - i * 64;
      const std::uint64_t free =
          rest >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << rest) - 1;
      set(p, run + je::run::kBitmap + i * je::kWord, free);
    }
  }
  decay_tick(p, arena);
  unlock_arena(p, arena);
  lock(p, b + je::bin::kLock, kBinLockName);
  return run != 0 ? run : lowest();
}

// arena_dalloc_bin_locked()
template <Platform P>
void Jemalloc<P>::region_dalloc(P& p, Addr arena, Addr mem, unsigned bin) {
  p.cycles(je::costs::kRegion);
  const Addr chunk = geometry_.chunk_of(mem);
  const std::uint64_t page = geometry_.page_in_chunk(mem);
  const Addr run = chunk + (page << geometry_.page_shift) - bits(p, chunk, page).size();
  const je::BinInfo& info = classes_[bin];
  const std::uint64_t index = (mem - run - info.first) / info.region;
  const Addr word = run + je::run::kBitmap + index / 64 * je::kWord;
  set(p, word, get(p, word) | std::uint64_t{1} << index % 64);
  const std::uint32_t free = get32(p, run + je::run::kFree) + 1;
  set32(p, run + je::run::kFree, free);
  const Addr b = bin_at(arena, bin);
  const bool current = run == get(p, b + je::bin::kRunCurrent);
  if (free == info.regions) {
    if (current)
      set(p, b + je::bin::kRunCurrent, 0);
    else if (info.regions != 1)
      bin_runs(p, b).erase(entry_of_run(run));
    dalloc_bin_run(p, arena, run, bin);
  } else if (free == 1 && !current) {
    lower_run(p, b, run);
  }
}

// Of the current run and this one the lower is current; the other waits in the tree.
template <Platform P>
void Jemalloc<P>::lower_run(P& p, Addr bin_address, Addr run) {
  const Addr current = get(p, bin_address + je::bin::kRunCurrent);
  if (current == 0 || run > current) {
    bin_runs(p, bin_address).insert(entry_of_run(run));
    return;
  }
  if (get32(p, current + je::run::kFree) > 0)
    bin_runs(p, bin_address).insert(entry_of_run(current));
  set(p, bin_address + je::bin::kRunCurrent, run);
}

// The run is all free and in no list.  Pages that no region reached go back as they came.
template <Platform P>
void Jemalloc<P>::dalloc_bin_run(P& p, Addr arena, Addr run, unsigned bin) {
  const Addr b = bin_at(arena, bin);
  const je::BinInfo& info = classes_[bin];
  unlock(p, b + je::bin::kLock, kBinLockName);
  lock_arena(p, arena);
  const Addr chunk = geometry_.chunk_of(run);
  const std::uint64_t page = geometry_.page_in_chunk(run);
  const std::uint64_t pages = info.run >> geometry_.page_shift;
  const std::uint64_t used =
      geometry_.round_to_page(info.first +
                              info.region * get32(p, run + je::run::kNextIndex)) >>
      geometry_.page_shift;
  if (bits(p, chunk, page).state() == State::kClean && used < pages) {
    const auto unzeroed = [&](std::uint64_t i) {
      return bits(p, chunk, i).raw & Bits::kUnzeroed;
    };
    set_bits(p, chunk, page + pages - 1,
             Bits::large_block(0, State::kClean, unzeroed(page + pages - 1)));
    set_bits(p, chunk, page, Bits::large_block(info.run, State::kClean, unzeroed(page)));
    run_trim_tail(p, arena, run, info.run, used << geometry_.page_shift, false);
  }
  run_dalloc(p, arena, run, true, State::kClean);
  decay_tick(p, arena);
  unlock_arena(p, arena);
  lock(p, b + je::bin::kLock, kBinLockName);
}

}  // namespace faultline::alloc
