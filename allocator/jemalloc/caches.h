// SPDX-License-Identifier: Apache-2.0
//
// What a thread keeps of each size: a stack of free blocks, refilled from the arena and
// flushed to it by the half, and trimmed a little at a time by what went unused.
//
// Stands for: include/jemalloc/internal/tcache.h, src/tcache.c (jemalloc 3.3.1).
#pragma once

#include <algorithm>

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

namespace je::cache {
inline constexpr std::uint64_t kEvents = 0, kNextGc = 8, kArena = 16, kBins = 24;
// A bin: the lowest number of blocks since the last look (-1: it was empty when asked), the
// shift of how much is filled, the number of blocks, and where they are.
inline constexpr std::uint64_t kLow = 0, kFillShift = 4, kCount = 8, kStack = 16,
                               kBinBytes = 24;
inline constexpr std::uint32_t kNever = ~std::uint32_t{0};
}  // namespace je::cache

template <Platform P>
Addr Jemalloc<P>::cache_bin(Addr cache, unsigned index) const {
  return cache + je::cache::kBins + je::cache::kBinBytes * index;
}

// tcache_bin_info[].ncached_max
template <Platform P>
std::uint32_t Jemalloc<P>::cache_most(unsigned index) const {
  constexpr std::uint32_t kSmall = 200, kLarge = 20;
  if (index >= classes_.count()) return kLarge;
  return std::min(2 * classes_[index].regions, kSmall);
}

// The thread's cache, made at its first need; 0: it has none.
template <Platform P>
Addr Jemalloc<P>::cache_of(P& p) {
  const Addr cache = p.thread_words().word[kCache];
  if (cache > kNoCache) [[likely]]
    return cache;
  if (cache == kNoCache || !settings_.tcache) return 0;
  return make_cache(p);
}

template <Platform P>
Addr Jemalloc<P>::make_cache(P& p) {
  const Addr arena = arena_of_thread(p);
  if (arena == 0) return 0;
  std::uint64_t bytes = cache_bin(0, cache_bins_);
  const std::uint64_t stacks = bytes;
  for (unsigned i = 0; i < cache_bins_; ++i) bytes += cache_most(i) * je::kWord;
  const std::uint64_t size = rounded(bytes);
  Addr cache = 0;
  if (bytes <= classes_.largest()) {
    const unsigned bin = classes_.bin_of(bytes);
    lock(p, bin_at(arena, bin) + je::bin::kLock, kBinLockName);
    cache = bin_malloc(p, arena, bin);
    unlock(p, bin_at(arena, bin) + je::bin::kLock, kBinLockName);
  } else if (size <= cached_max_) {
    cache = large_alloc(p, arena, size, false);
  } else {
    cache = large_alloc(p, arena_at(p, 0), size, false);
  }
  if (cache == 0) return 0;
  p.set(cache, 0, stacks);
  set(p, cache + je::cache::kArena, arena);
  Addr stack = cache + stacks;
  for (unsigned i = 0; i < cache_bins_; ++i) {
    set32(p, cache_bin(cache, i) + je::cache::kFillShift, 1);
    set(p, cache_bin(cache, i) + je::cache::kStack, stack);
    stack += cache_most(i) * je::kWord;
  }
  p.thread_words().word[kCache] = cache;
  return cache;
}

template <Platform P>
Addr Jemalloc<P>::cache_alloc(P& p, Addr cache, unsigned index) {
  const Addr b = cache_bin(cache, index);
  std::uint32_t count = get32(p, b + je::cache::kCount);
  if (count == 0) {
    set32(p, b + je::cache::kLow, je::cache::kNever);
    if (index >= classes_.count()) return 0;
    cache_fill(p, cache, index);
    count = get32(p, b + je::cache::kCount);
    if (count == 0) return 0;
  }
  p.cycles(je::costs::kCacheHit);
  --count;
  set32(p, b + je::cache::kCount, count);
  const std::uint32_t low = get32(p, b + je::cache::kLow);
  if (low != je::cache::kNever && count < low) set32(p, b + je::cache::kLow, count);
  const Addr mem = get(p, get(p, b + je::cache::kStack) + count * je::kWord);
  cache_event(p, cache);
  return mem;
}

// The lowest region is used first.
template <Platform P>
void Jemalloc<P>::cache_fill(P& p, Addr cache, unsigned index) {
  const Frame frame(p, je::places::kTcacheFill);
  const Addr b = cache_bin(cache, index);
  const Addr arena = get(p, cache + je::cache::kArena);
  const Addr stack = get(p, b + je::cache::kStack);
  const std::uint32_t most =
      std::max(cache_most(index) >> get32(p, b + je::cache::kFillShift), 1U);
  const Addr bin_lock = bin_at(arena, index) + je::bin::kLock;
  std::uint32_t got = 0;
  lock(p, bin_lock, kBinLockName);
  while (got < most) {
    const Addr mem = bin_malloc(p, arena, index);
    if (mem == 0) break;
    set(p, stack + (most - 1 - got) * je::kWord, mem);
    ++got;
  }
  unlock(p, bin_lock, kBinLockName);
  if (got < most)
    for (std::uint32_t i = 0; i < got; ++i)
      set(p, stack + i * je::kWord, get(p, stack + (most - got + i) * je::kWord));
  set32(p, b + je::cache::kCount, got);
}

template <Platform P>
void Jemalloc<P>::cache_dalloc(P& p, Addr cache, unsigned index, Addr mem) {
  const Addr b = cache_bin(cache, index);
  if (get32(p, b + je::cache::kCount) == cache_most(index))
    cache_flush(p, cache, index, cache_most(index) >> 1);
  p.cycles(je::costs::kFreeHit);
  const std::uint32_t count = get32(p, b + je::cache::kCount);
  set(p, get(p, b + je::cache::kStack) + count * je::kWord, mem);
  set32(p, b + je::cache::kCount, count + 1);
  cache_event(p, cache);
}

// All but the newest `keep` go back, one arena after the other.
template <Platform P>
void Jemalloc<P>::cache_flush(P& p, Addr cache, unsigned index, std::uint32_t keep) {
  const Frame frame(p, je::places::kTcacheFlush);
  const Addr b = cache_bin(cache, index);
  const Addr stack = get(p, b + je::cache::kStack);
  const std::uint32_t count = get32(p, b + je::cache::kCount);
  const bool small = index < classes_.count();
  const auto slot = [&](std::uint32_t i) { return stack + i * je::kWord; };
  const auto arena_of = [&](Addr mem) {
    return get(p, geometry_.chunk_of(mem) + je::chunk::kArena);
  };
  for (std::uint32_t left = count - keep; left > 0;) {
    const Addr arena = arena_of(get(p, slot(0)));
    const Addr word =
        small ? bin_at(arena, index) + je::bin::kLock : arena + je::arena::kLock;
    const char* const name = small ? kBinLockName : kArenaLockName;
    std::uint32_t others = 0;
    lock(p, word, name);
    for (std::uint32_t i = 0; i < left; ++i) {
      const Addr mem = get(p, slot(i));
      if (arena_of(mem) != arena) {
        set(p, slot(others++), mem);
      } else if (small) {
        region_dalloc(p, arena, mem, index);
      } else {
        run_dalloc(p, arena, mem, true, State::kClean);
        decay_tick(p, arena);
      }
    }
    unlock(p, word, name);
    left = others;
  }
  for (std::uint32_t i = 0; i < keep; ++i) set(p, slot(i), get(p, slot(count - keep + i)));
  set32(p, b + je::cache::kCount, keep);
  const std::uint32_t low = get32(p, b + je::cache::kLow);
  if (low != je::cache::kNever && keep < low) set32(p, b + je::cache::kLow, keep);
}

// tcache_event_hard(): from time to time one bin is looked at.  Of what it never needed
// since, three quarters go.
template <Platform P>
void Jemalloc<P>::cache_event(P& p, Addr cache) {
  constexpr std::uint64_t kSweep = 8192;
  const std::uint64_t events = get(p, cache + je::cache::kEvents) + 1;
  if (events < (kSweep + classes_.count() - 1) / classes_.count()) {
    set(p, cache + je::cache::kEvents, events);
    return;
  }
  set(p, cache + je::cache::kEvents, 0);
  const auto index = static_cast<unsigned>(get(p, cache + je::cache::kNextGc));
  const Addr b = cache_bin(cache, index);
  const std::uint32_t low = get32(p, b + je::cache::kLow);
  const std::uint32_t shift = get32(p, b + je::cache::kFillShift);
  if (low == je::cache::kNever) {
    if (shift > 1) set32(p, b + je::cache::kFillShift, shift - 1);
  } else if (low > 0) {
    cache_flush(p, cache, index, get32(p, b + je::cache::kCount) - low + (low >> 2));
    if (cache_most(index) >> (shift + 1) >= 1)
      set32(p, b + je::cache::kFillShift, shift + 1);
  }
  set32(p, b + je::cache::kLow, get32(p, b + je::cache::kCount));
  set(p, cache + je::cache::kNextGc, index + 1 == cache_bins_ ? 0 : index + 1);
}

template <Platform P>
void Jemalloc<P>::drop_cache(P& p, Addr cache) {
  for (unsigned i = 0; i < cache_bins_; ++i)
    if (get32(p, cache_bin(cache, i) + je::cache::kCount) != 0) cache_flush(p, cache, i, 0);
  const Addr chunk = geometry_.chunk_of(cache);
  const std::uint64_t page = geometry_.page_in_chunk(cache);
  const Bits b = bits(p, chunk, page);
  const Addr arena = get(p, chunk + je::chunk::kArena);
  if (b.large()) {
    large_dalloc(p, cache, page);
    return;
  }
  const Addr bin_lock = bin_at(arena, b.bin()) + je::bin::kLock;
  lock(p, bin_lock, kBinLockName);
  region_dalloc(p, arena, cache, b.bin());
  unlock(p, bin_lock, kBinLockName);
}

}  // namespace faultline::alloc
