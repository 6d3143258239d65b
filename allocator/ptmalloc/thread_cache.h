// SPDX-License-Identifier: Apache-2.0
//
// The life of a thread's cache: made by the thread's first call (2.43: when a chunk could
// be put into it), emptied chunk by chunk when the thread ends.
//
// Stands for: tcache_init, tcache_thread_shutdown, malloc/malloc.c (glibc 2.26-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// The thread's cache, made now if the release makes it here; 0 if there is none.
template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::thread_cache(P& p, std::uint64_t size_to_put) {
  const ThreadWords& thread = p.thread_words();
  if (thread.word[kTcache] != 0) [[likely]]
    return thread.word[kTcache];
  if (tcache_limit_ == 0 || thread.word[kExiting] != 0) return 0;
  if (release_.tcache == TcacheCreation::kFirstCall ||
      (size_to_put != UINT64_MAX && tcache_index(size_to_put) < tcache_limit_))
    make_thread_cache(p);
  return thread.word[kTcache];
}

template <Platform P>
void Ptmalloc<P>::make_thread_cache(P& p) {
  const Frame frame(p, places::kTcacheInit);
  const std::uint64_t bytes = release_.tcache_request();
  const Addr mem = in_a_locked_arena(
      p, bytes, [this, bytes](const Arena<P>& av) { return int_malloc(av, bytes); });
  if (mem == 0) return;
  p.set(mem, 0, release_.tcache_bytes());
  p.thread_words().word[kTcache] = mem;
}

// A block of that size from the thread's cache; 0 if it has none.
template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::take_cached(P& p, Addr cached, std::uint64_t bytes) {
  const unsigned index = tcache_index(chunk_size_for(bytes));
  const Tcache<P> tc(p, cached, tcache_shape_);
  if (index >= tcache_limit_ || tc.count(index) == 0) return 0;
  p.cycles(release_.costs.malloc_hit);
  return tc.get(index, release_.tcache_key);
}

template <Platform P>
FAULTLINE_INLINE bool Ptmalloc<P>::cache_has_room(P& p, std::uint64_t size) const {
  const Addr cached = p.thread_words().word[kTcache];
  if (cached == 0) return false;
  const unsigned index = tcache_index(size);
  return index < tcache_limit_ && Tcache<P>(p, cached, tcache_shape_).count(index) <
                                      static_cast<unsigned>(settings_.tcache_count);
}

// Precondition: cache_has_room.
template <Platform P>
void Ptmalloc<P>::cache(P& p, Addr c, std::uint64_t size) {
  const Tcache<P> tc(p, p.thread_words().word[kTcache], tcache_shape_);
  const unsigned index = tcache_index(size);
  if (release_.tcache_key != TcacheKey::kNone) check_double_free(tc, index, to_mem(c));
  tc.put(index, to_mem(c), release_.tcache_key, tcache_key_);
}

// What an arena has more of the size goes into the cache while there is room: `take` gives
// chunks that are free for sure, 0 when there are none.
template <Platform P>
template <typename Take>
void Ptmalloc<P>::fill_cache(P& p, std::uint64_t size, Take take) {
  const Addr cached = p.thread_words().word[kTcache];
  const unsigned index = tcache_index(size);
  if (cached == 0 || index >= tcache_limit_) return;
  const Tcache<P> tc(p, cached, tcache_shape_);
  while (tc.count(index) < static_cast<unsigned>(settings_.tcache_count)) {
    const Addr c = take();
    if (c == 0) return;
    tc.put(index, to_mem(c), release_.tcache_key, tcache_key_);
  }
}

template <Platform P>
void Ptmalloc<P>::check_double_free(const Tcache<P>& tc, unsigned index, Addr mem) const {
  const std::uint64_t key =
      release_.tcache_key == TcacheKey::kOwner ? tc.at() : tcache_key_;
  if (tc.key_of(mem) != key) [[likely]]
    return;
  // By chance or by a second free: the list knows.
  for (Addr cached = tc.peek(index); cached != 0; cached = tc.next(cached))
    if (cached == mem) malloc_printerr("free(): double free detected in tcache 2");
}

template <Platform P>
void Ptmalloc<P>::empty_thread_cache(P& p, Addr cache) {
  const Frame frame(p, places::kTcacheShutdown);
  const Tcache<P> tc(p, cache, tcache_shape_);
  for (unsigned i = 0; i < tcache_limit_; ++i)
    while (tc.count(i) > 0) free(p, tc.get(i, release_.tcache_key));
  free(p, cache);
}

}  // namespace faultline::alloc
