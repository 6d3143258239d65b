// SPDX-License-Identifier: Apache-2.0
//
// The entry points, start-up, and which arena a thread uses: an arena of its own as long as
// there are free slots, else the one with the fewest threads.  The choice is kept.
//
// Stands for: src/jemalloc.c (choose_arena_hard, malloc …), ivsalloc and iralloc
// (jemalloc 3.3.1).
#pragma once

#include <algorithm>

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Jemalloc<P>::Jemalloc(P& p, const je::Settings& settings)
    : settings_(settings),
      geometry_(p.facts().page_size, settings.lg_chunk),
      classes_(geometry_.page, geometry_.max_run),
      narenas_(settings.narenas != 0 ? settings.narenas
               : p.facts().cpus > 1  ? 4 * p.facts().cpus
                                     : 1) {
  const std::uint64_t asked = std::uint64_t{1} << settings.lg_tcache_max;
  cached_max_ = std::min(std::max(asked, classes_.largest()), geometry_.max_run);
  cache_bins_ =
      classes_.count() + static_cast<unsigned>(cached_max_ >> geometry_.page_shift);
  roots_ = p.static_storage(je::kWord * static_cast<unsigned>(Root::kCount));
  p.set_thread_hooks(thread_hooks_of<P>(*this));
}

// malloc_init_hard(): the first thread has the first arena.
template <Platform P>
void Jemalloc<P>::boot(P& p) {
  const Addr table = base_alloc(p, narenas_ * je::kWord);
  if (table == 0) return;
  set(p, at(Root::kArenas), table);
  booted_.store(true, std::memory_order_release);
  lock(p, at(Root::kArenasLock), kArenasLockName);
  const Addr first = arenas_extend(p, 0);
  if (first != 0) set(p, first + je::arena::kThreads, 1);
  p.thread_words().word[kArena] = first;
  unlock(p, at(Root::kArenasLock), kArenasLockName);
}

template <Platform P>
bool Jemalloc<P>::is_booted(P& p) {
  if (!booted_.load(std::memory_order_acquire)) [[unlikely]]
    boot(p);
  return booted_.load(std::memory_order_relaxed);
}

template <Platform P>
Addr Jemalloc<P>::arena_at(P& p, unsigned slot) const {
  return get(p, get(p, at(Root::kArenas)) + slot * je::kWord);
}

template <Platform P>
je::ArenaPages Jemalloc<P>::pages_of(P& p, Addr arena) const {
  je::ArenaPages out;
  out.active = get(p, arena + je::arena::kActive);
  for (unsigned s = 0; s < je::kRunStates; ++s)
    out.free[s] = get(p, arena + je::arena::kPages + je::kWord * s);
  return out;
}

// The lock is held.  Fresh memory of the allocator's own is zero.
template <Platform P>
Addr Jemalloc<P>::arenas_extend(P& p, unsigned slot) {
  const Frame frame(p, je::places::kArenasExtend);
  const Addr arena = base_alloc(p, je::arena::kBins + je::bin::kBytes * classes_.count());
  if (arena != 0) set(p, get(p, at(Root::kArenas)) + slot * je::kWord, arena);
  return arena;
}

template <Platform P>
Addr Jemalloc<P>::arena_of_thread(P& p) {
  if (const Addr own = p.thread_words().word[kArena]) return own;
  lock(p, at(Root::kArenasLock), kArenasLockName);
  unsigned choice = 0, empty_slot = narenas_;
  const auto threads = [&](unsigned i) {
    return arena_at(p, i) == 0 ? 0 : get(p, arena_at(p, i) + je::arena::kThreads);
  };
  for (unsigned i = 1; i < narenas_; ++i) {
    if (arena_at(p, i) == 0)
      empty_slot = std::min(empty_slot, i);
    else if (threads(i) < threads(choice))
      choice = i;
  }
  Addr arena = arena_at(p, 0) == 0 ? arenas_extend(p, 0) : Addr{0};
  if (arena == 0 && empty_slot < narenas_ && threads(choice) != 0)
    arena = arenas_extend(p, empty_slot);
  if (arena == 0) arena = arena_at(p, choice);
  if (arena == 0) {
    unlock(p, at(Root::kArenasLock), kArenasLockName);
    return 0;
  }
  add(p, arena + je::arena::kThreads, 1);
  unlock(p, at(Root::kArenasLock), kArenasLockName);
  p.thread_words().word[kArena] = arena;
  return arena;
}

// s2u(): what a request of that size gets.
template <Platform P>
std::uint64_t Jemalloc<P>::rounded(std::uint64_t bytes) const {
  if (bytes <= classes_.largest()) return classes_[classes_.bin_of(bytes)].region;
  if (bytes <= geometry_.max_run) return geometry_.round_to_page(bytes);
  return geometry_.round_to_chunk(bytes);
}

template <Platform P>
Addr Jemalloc<P>::allocate(P& p, std::uint64_t bytes, bool zero) {
  if (!is_booted(p)) return 0;
  if (bytes == 0) bytes = 1;
  if (bytes > geometry_.max_run) return huge_alloc(p, bytes, geometry_.chunk, zero);
  const bool small = bytes <= classes_.largest();
  if (bytes <= cached_max_) {
    if (const Addr cache = cache_of(p)) {
      const unsigned index =
          small ? classes_.bin_of(bytes)
                : classes_.count() +
                      static_cast<unsigned>(geometry_.round_to_page(bytes) >>
                                            geometry_.page_shift) -
                      1;
      const Addr mem = cache_alloc(p, cache, index);
      if (mem != 0 && zero) p.set(mem, 0, rounded(bytes));
      if (mem != 0 || small) return mem;
    }
  }
  const Addr arena = arena_of_thread(p);
  if (arena == 0) return 0;
  if (!small) return large_alloc(p, arena, geometry_.round_to_page(bytes), zero);
  const unsigned bin = classes_.bin_of(bytes);
  const Addr bin_lock = bin_at(arena, bin) + je::bin::kLock;
  lock(p, bin_lock, kBinLockName);
  const Addr mem = bin_malloc(p, arena, bin);
  unlock(p, bin_lock, kBinLockName);
  if (mem != 0 && zero) p.set(mem, 0, classes_[bin].region);
  return mem;
}

template <Platform P>
Addr Jemalloc<P>::malloc(P& p, std::uint64_t bytes) {
  const Frame frame(p, je::places::kMalloc);
  return allocate(p, bytes, false);
}

template <Platform P>
Addr Jemalloc<P>::calloc(P& p, std::uint64_t count, std::uint64_t each) {
  const Frame frame(p, je::places::kCalloc);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) return 0;
  return allocate(p, bytes, true);
}

template <Platform P>
void Jemalloc<P>::free(P& p, Addr mem) {
  if (mem == 0) return;
  const Frame frame(p, je::places::kFree);
  const Addr chunk = geometry_.chunk_of(mem);
  if (chunk == mem) {
    huge_dalloc(p, mem);
    return;
  }
  const std::uint64_t page = geometry_.page_in_chunk(mem);
  const Bits b = bits(p, chunk, page);
  if (!b.large()) {
    if (const Addr cache = cache_of(p)) {
      cache_dalloc(p, cache, b.bin(), mem);
      return;
    }
    const Addr arena = get(p, chunk + je::chunk::kArena);
    const Addr bin_lock = bin_at(arena, b.bin()) + je::bin::kLock;
    lock(p, bin_lock, kBinLockName);
    region_dalloc(p, arena, mem, b.bin());
    unlock(p, bin_lock, kBinLockName);
    return;
  }
  if (b.size() <= cached_max_) {
    if (const Addr cache = cache_of(p)) {
      cache_dalloc(
          p, cache,
          classes_.count() + static_cast<unsigned>(b.size() >> geometry_.page_shift) - 1,
          mem);
      return;
    }
  }
  large_dalloc(p, mem, page);
}

template <Platform P>
std::uint64_t Jemalloc<P>::malloc_usable_size(P& p, Addr mem) const {
  if (mem == 0) return 0;
  const Addr chunk = geometry_.chunk_of(mem);
  if (chunk == mem) return huge_size(p, mem);
  const Bits b = bits(p, chunk, geometry_.page_in_chunk(mem));
  return b.large() ? b.size() : classes_[b.bin()].region;
}

// In place if the size class stays, or a large block can shrink or has room behind it.
template <Platform P>
Addr Jemalloc<P>::realloc(P& p, Addr mem, std::uint64_t bytes) {
  const Frame frame(p, je::places::kRealloc);
  if (mem == 0) return allocate(p, bytes, false);
  if (bytes == 0) {
    free(p, mem);
    return 0;
  }
  const std::uint64_t old_size = malloc_usable_size(p, mem);
  const std::uint64_t size = rounded(bytes);
  if (size < bytes) return 0;
  if (size == old_size) return mem;
  const auto large = [&](std::uint64_t n) {
    return n > classes_.largest() && n <= geometry_.max_run;
  };
  if (large(old_size) && large(size) && large_resize(p, mem, old_size, size)) return mem;
  const Addr moved = allocate(p, bytes, false);
  if (moved == 0) return 0;
  p.copy(moved, mem, std::min(bytes, old_size));
  free(p, mem);
  return moved;
}

// ipalloc(), sa2u(): a class that is a multiple of the alignment has aligned regions up to
// a page.
template <Platform P>
Addr Jemalloc<P>::memalign(P& p, std::uint64_t alignment, std::uint64_t bytes) {
  const Frame frame(p, je::places::kMemalign);
  if (!is_booted(p)) return 0;
  if (bytes == 0) bytes = 1;
  const std::uint64_t size = (bytes + alignment - 1) & ~(alignment - 1);
  if (size < bytes) return 0;
  if (size <= classes_.largest() && alignment < geometry_.page) {
    // Regions lie at multiples of their size from the end of their run: as aligned as the
    // size.
    const std::uint64_t region = rounded(size);
    if (region % alignment == 0) return allocate(p, size, false);
    return allocate(p, std::bit_ceil(size), false);
  }
  if (alignment <= geometry_.page) {
    if (bytes > geometry_.max_run) return huge_alloc(p, bytes, geometry_.chunk, false);
    return allocate(p, std::max(bytes, classes_.largest() + 1), false);
  }
  const std::uint64_t whole = geometry_.round_to_page(bytes);
  if (whole < bytes) return 0;
  if (alignment < geometry_.chunk &&
      whole + alignment - geometry_.page <= geometry_.max_run) {
    const Addr arena = arena_of_thread(p);
    return arena == 0 ? 0 : large_aligned(p, arena, whole, alignment);
  }
  return huge_alloc(p, bytes, alignment, false);
}

template <Platform P>
void Jemalloc<P>::thread_exit(P& p) {
  ThreadWords& thread = p.thread_words();
  const Addr cache = thread.word[kCache];
  thread.word[kCache] = kNoCache;
  if (cache > kNoCache) drop_cache(p, cache);
  const Addr arena = thread.word[kArena];
  thread.word[kArena] = 0;
  if (arena == 0) return;
  lock(p, at(Root::kArenasLock), kArenasLockName);
  add(p, arena + je::arena::kThreads, 0 - std::uint64_t{1});
  unlock(p, at(Root::kArenasLock), kArenasLockName);
}

// jemalloc_prefork(): from the outside in; a bin's lock may be held when an arena's is
// taken only after it was let go, so that their order is free.
template <Platform P>
void Jemalloc<P>::fork_lock(P& p) {
  if (!booted_.load(std::memory_order_acquire)) return;
  lock(p, at(Root::kArenasLock), kArenasLockName);
  for (unsigned i = 0; i < narenas_; ++i) {
    const Addr arena = arena_at(p, i);
    if (arena == 0) continue;
    for (unsigned b = 0; b < classes_.count(); ++b)
      lock(p, bin_at(arena, b) + je::bin::kLock, kBinLockName);
    lock_arena(p, arena);
  }
  lock(p, at(Root::kHugeLock), kHugeLockName);
  lock(p, at(Root::kChunksLock), kChunksLockName);
  lock(p, at(Root::kBaseLock), kBaseLockName);
}

template <Platform P>
template <typename Release>
void Jemalloc<P>::fork_release(P& p, Release release) {
  if (!booted_.load(std::memory_order_acquire)) return;
  release(at(Root::kBaseLock), kBaseLockName);
  release(at(Root::kChunksLock), kChunksLockName);
  release(at(Root::kHugeLock), kHugeLockName);
  for (unsigned i = 0; i < narenas_; ++i) {
    const Addr arena = arena_at(p, i);
    if (arena == 0) continue;
    release(arena + je::arena::kLock, kArenaLockName);
    for (unsigned b = 0; b < classes_.count(); ++b)
      release(bin_at(arena, b) + je::bin::kLock, kBinLockName);
  }
  release(at(Root::kArenasLock), kArenasLockName);
}

template <Platform P>
void Jemalloc<P>::fork_unlock_parent(P& p) {
  fork_release(p, [&](Addr word, const char* name) { unlock(p, word, name); });
}

template <Platform P>
void Jemalloc<P>::fork_unlock_child(P& p) {
  fork_release(p,
               [&](Addr word, const char* name) { p.reset_lock(p.lock_at(word, name)); });
  p.set_thread_hooks(thread_hooks_of<P>(*this));
}

template <Platform P>
Jemalloc<P>::Jemalloc(const Jemalloc& other)
    : settings_(other.settings_),
      geometry_(other.geometry_),
      classes_(other.classes_),
      narenas_(other.narenas_),
      cached_max_(other.cached_max_),
      cache_bins_(other.cache_bins_),
      roots_(other.roots_),
      booted_(other.booted_.load()),
      no_vrange_(other.no_vrange_.load()),
      no_free_(other.no_free_.load()) {}

}  // namespace faultline::alloc
