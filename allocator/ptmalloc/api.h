// SPDX-License-Identifier: Apache-2.0
//
// The entry points: malloc, free, calloc, what they do before they come to an arena, and
// start-up.
//
// The thread's cache comes first and needs no lock.  A process without a second thread uses
// the main arena without locking; otherwise the thread's arena is locked for all of the
// work, its system calls included.  If one arena has nothing left, one other is asked.
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Ptmalloc<P>::Ptmalloc(P& p, const ReleaseProfile& release, const Settings& settings)
    : release_(release),
      tcache_shape_(release),
      layout_(release),
      settings_(settings),
      huge_(huge_pages(p.facts(), release, settings)) {
  shared_ = p.static_storage(kWord * static_cast<unsigned>(Shared::kCount));
  main_ = p.static_storage(layout_.bytes);
  p.set_thread_hooks(thread_hooks_of<P>(*this));
  if (release_.init_at_start) init(p);
}

// ptmalloc_init: the thread that comes here first has the main arena.
template <Platform P>
void Ptmalloc<P>::init(P& p) {
  max_fast_ =
      release_.fastbins ? align_down(settings_.mxfast + kWord, kMallocAlignment) : 0;
  if (release_.tcache != TcacheCreation::kNever && settings_.tcache_count != 0) {
    tcache_limit_ = tcache_index(chunk_size_for(settings_.tcache_max)) + 1;
    if (tcache_limit_ > release_.tcache_bins) tcache_limit_ = release_.tcache_bins;
    if (settings_.tcache_count < 0)
      settings_.tcache_count = static_cast<int>(release_.tcache_depth);
    if (release_.tcache_key == TcacheKey::kRandom) tcache_key_ = p.random_key();
  }
  if (huge_.hp_pagesize != 0 && release_.hugetlb_sets_threshold) {
    settings_.mmap_threshold = huge_.hp_pagesize;
    settings_.dynamic_threshold = false;
  }
  p.atomic_store(at(Shared::kMmapThreshold), settings_.mmap_threshold);
  p.atomic_store(at(Shared::kTrimThreshold), settings_.trim_threshold);
  p.atomic_store(at(Shared::kArenas), 1);
  const Arena<P> main = arena(p, main_);
  main.init_state();
  main.set_next(main_);
  main.set_attached(1);
  p.thread_words().word[kArena] = main_;
  initialised_.store(true, std::memory_order_release);
}

// What the thread's cache holds is served here; all else out of line.
template <Platform P>
inline Addr Ptmalloc<P>::malloc(P& p, std::uint64_t bytes) {
  const Frame frame(p, places::kMalloc);
  const Addr cached = p.thread_words().word[kTcache];
  if (cached == 0 || bytes > release_.max_request) [[unlikely]]
    return malloc_first(p, bytes);
  if (const Addr mem = take_cached(p, cached, bytes)) [[likely]]
    return mem;
  return malloc_uncached(p, bytes);
}

// The thread has no cache yet, or can't have one.
template <Platform P>
Addr Ptmalloc<P>::malloc_first(P& p, std::uint64_t bytes) {
  if (!initialised_.load(std::memory_order_acquire)) init(p);
  if (bytes > release_.max_request) return 0;
  thread_cache(p);  // a new one: there is nothing in it yet
  return malloc_uncached(p, bytes);
}

template <Platform P>
Addr Ptmalloc<P>::malloc_uncached(P& p, std::uint64_t bytes) {
  p.cycles(release_.costs.malloc_entry);
  return in_an_arena(p, bytes,
                     [this, bytes](const Arena<P>& av) { return int_malloc(av, bytes); });
}

template <Platform P>
inline void Ptmalloc<P>::free(P& p, Addr mem) {
  if (mem == 0) return;
  const Frame frame(p, places::kFree);
  p.cycles(release_.costs.free_entry);
  const Addr c = to_chunk(mem);
  const std::uint64_t head = Chunks<P>(p).head(c);
  const std::uint64_t size = head & ~kSizeBits;
  if ((head & kIsMmapped) == 0 && cache_has_room(p, size)) [[likely]] {
    p.cycles(release_.costs.free_hit);
    cache(p, c, size);
    return;
  }
  free_uncached(p, c, head);
}

// The same with a cache that is made now, or without one.
template <Platform P>
void Ptmalloc<P>::free_uncached(P& p, Addr c, std::uint64_t head) {
  if ((head & kIsMmapped) != 0) {
    free_mmapped(p, c, head);
    return;
  }
  const std::uint64_t size = head & ~kSizeBits;
  if (p.thread_words().word[kTcache] == 0 && thread_cache(p, size) != 0 &&
      cache_has_room(p, size)) {
    p.cycles(release_.costs.free_hit);
    cache(p, c, size);
    return;
  }
  int_free_chunk(arena_of(p, c, head), c, size, alone(p) ? Held::kYes : Held::kNo);
}

// Runs `work` in an arena; if that fails, in one other.
template <Platform P>
template <typename Work>
FAULTLINE_INLINE Addr Ptmalloc<P>::in_an_arena(P& p, std::uint64_t bytes, Work work) {
  if (alone(p)) return work(arena(p, main_));
  return in_a_locked_arena(p, bytes, work);
}

template <Platform P>
template <typename Work>
Addr Ptmalloc<P>::in_a_locked_arena(P& p, std::uint64_t bytes, Work work) {
  Addr av = arena_get(p, bytes);
  Addr mem = work(arena(p, av));
  if (mem == 0 && av != 0) {
    av = arena_get_retry(p, av, bytes);
    mem = work(arena(p, av));
  }
  if (av != 0) p.unlock(arena(p, av).lock());
  return mem;
}

// arena_for_chunk
template <Platform P>
Arena<P> Ptmalloc<P>::arena_of(P& p, Addr c, std::uint64_t head) const {
  const bool of_main = (head & kNonMainArena) == 0;
  return arena(p, of_main ? main_ : Chunks<P>(p).word(heap_start(c) + heap_info::kArena));
}

template <Platform P>
Addr Ptmalloc<P>::calloc(P& p, std::uint64_t count, std::uint64_t each) {
  const Frame frame(p, places::kCalloc);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes) || bytes > release_.max_request) return 0;
  if (!initialised_.load(std::memory_order_acquire)) [[unlikely]]
    init(p);
  p.cycles(release_.costs.calloc_extra);
  const Chunks<P> m(p);
  if (const Addr cached = thread_cache(p); cached != 0 && release_.calloc_from_tcache) {
    if (const Addr mem = take_cached(p, cached, bytes)) {
      p.set(mem, 0, m.size(to_chunk(mem)) - kWord);
      return mem;
    }
  }
  p.cycles(release_.costs.malloc_entry);
  // What lies in top beyond all that was ever handed out is zero already.
  Addr old_top = 0;
  std::uint64_t used = 0;
  const Addr mem = in_an_arena(p, bytes, [&](const Arena<P>& av) {
    if (old_top == 0 && av.at() != 0) {
      old_top = av.top();
      used = used_before(av);
    }
    return int_malloc(av, bytes);
  });
  if (mem == 0) return 0;
  const Addr c = to_chunk(mem);
  const std::uint64_t head = m.head(c);
  if ((head & kIsMmapped) != 0) {
    if (settings_.perturb != 0) p.set(mem, 0, bytes);
    return mem;
  }
  std::uint64_t dirty = head & ~kSizeBits;
  if (settings_.perturb == 0 && c == old_top && dirty > used) dirty = used;
  p.set(mem, 0, dirty - kWord);
  return mem;
}

// How much of top, from its start, may hold old data: up to the highest break ever in the
// main arena, up to what was ever made accessible in a heap.
template <Platform P>
std::uint64_t Ptmalloc<P>::used_before(const Arena<P>& av) const {
  const Addr top = av.top();
  const std::uint64_t size = av.m.size(top);
  // Without a heap, or if top is no part of it, the difference wraps to more than any chunk
  // has.
  const Addr ever =
      av.is_main()
          ? av.m.p.atomic_load(at(Shared::kSbrkBase)) + av.max_system_mem()
          : heap_start(top) + av.m.word(heap_start(top) + heap_info::kMprotectSize);
  return std::max(size, ever - top);
}

template <Platform P>
std::uint64_t Ptmalloc<P>::malloc_usable_size(P& p, Addr mem) const {
  if (mem == 0) return 0;
  const Chunks<P> m(p);
  const std::uint64_t head = m.head(to_chunk(mem));
  const std::uint64_t overhead =
      (head & kIsMmapped) != 0 && release_.mmap_hidden == 0 ? kHeader : kWord;
  return (head & ~kSizeBits) - overhead;
}

template <Platform P>
void Ptmalloc<P>::thread_exit(P& p) {
  ThreadWords& thread = p.thread_words();
  const Addr cache = thread.word[kTcache];
  thread.word[kTcache] = 0;
  thread.word[kExiting] = 1;
  if (cache != 0) empty_thread_cache(p, cache);
  detach_thread(p);
}

}  // namespace faultline::alloc
