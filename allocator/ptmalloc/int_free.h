// SPDX-License-Identifier: Apache-2.0
//
// Freeing in an arena: fastbin, or merge with free neighbours and with top; then perhaps
// trim.
//
// Stands for: _int_free, malloc_consolidate, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// The way of any free: the thread's cache, else the arena.
template <Platform P>
void Ptmalloc<P>::int_free(const Arena<P>& av, Addr c, Held held) {
  P& p = av.m.p;
  const std::uint64_t size = av.m.size(c);
  if (cache_has_room(p, size))
    cache(p, c, size);
  else
    int_free_chunk(av, c, size, held);
}

// What the allocator itself cuts off a chunk and frees under the lock.
template <Platform P>
void Ptmalloc<P>::free_cut(const Arena<P>& av, Addr c, bool through_cache) {
  if (through_cache)
    int_free(av, c, Held::kYes);
  else
    int_free_chunk(av, c, av.m.size(c), Held::kYes);
}

template <Platform P>
void Ptmalloc<P>::int_free_chunk(const Arena<P>& av, Addr c, std::uint64_t size,
                                 Held held) {
  P& p = av.m.p;
  const Frame frame(p, places::kIntFree);
  if (settings_.perturb != 0)
    p.set(to_mem(c), static_cast<std::uint8_t>(settings_.perturb), size - kWord);
  if (size <= max_fast_) {
    push_fast(av, c, size);
    return;
  }
  if (held == Held::kNo) lock(p, av);
  p.cycles(release_.costs.free_arena);
  if (merge_free(av, c, size) >= kFastbinConsolidation) {
    if (release_.fastbins && av.have_fast()) consolidate(av);
    trim_after_free(av);
  }
  if (held == Held::kNo) p.unlock(av.lock());
}

// Without the lock; the size word of the next chunk is looked at.
template <Platform P>
FAULTLINE_INLINE void Ptmalloc<P>::push_fast(const Arena<P>& av, Addr c,
                                             std::uint64_t size) {
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  p.cycles(release_.costs.free_fast);
  if (m.head(c + size) <= 2 * kWord) malloc_printerr("free(): invalid next size (fast)");
  av.set_have_fast(true);
  const Addr head = av.fastbin(fastbin_index(size));
  if (alone(p)) {
    const Addr old = m.word(head);
    if (old == c) malloc_printerr("double free or corruption (fasttop)");
    m.set_fd(c, old);
    m.set_word(head, c);
    return;
  }
  for (;;) {
    const Addr old = p.atomic_load(head);
    if (old == c) malloc_printerr("double free or corruption (fasttop)");
    m.set_fd(c, old);
    if (p.compare_exchange(head, old, c)) return;
  }
}

// Merges `c` with free neighbours and files it, or makes it part of top.  Answers the
// merged size.
template <Platform P>
std::uint64_t Ptmalloc<P>::merge_free(const Arena<P>& av, Addr c, std::uint64_t size) {
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  const Bins<P> bins(av);
  const Addr next = c + size;
  const Addr top = av.top();
  if (c == top) malloc_printerr("double free or corruption (top)");
  if (!m.prev_inuse(next)) malloc_printerr("double free or corruption (!prev)");
  const std::uint64_t next_size = m.size(next);
  if (!m.prev_inuse(c)) {
    const std::uint64_t before = m.prev_size(c);
    c -= before;
    size += before;
    if (m.size(c) != before)
      malloc_printerr("corrupted size vs. prev_size while consolidating");
    bins.unlink(c);
    p.cycles(release_.costs.unlink);
  }
  if (next == top) {
    size += next_size;
    m.set_head(c, size | kPrevInuse);
    av.set_top(c);
    return size;
  }
  if (!m.inuse(next, next_size)) {
    bins.unlink(next);
    p.cycles(release_.costs.unlink);
    size += next_size;
  } else {
    m.clear_prev_inuse(next);
  }
  if (release_.frees_to_smallbin && is_small(size))
    bins.file(c, size);
  else
    bins.push_unsorted(c, size);
  m.set_head(c, size | kPrevInuse);
  m.set_foot(c, size);
  return size;
}

template <Platform P>
void Ptmalloc<P>::trim_after_free(const Arena<P>& av) {
  P& p = av.m.p;
  p.cycles(release_.costs.trim_attempt);
  if (!av.is_main())
    heap_trim(av);
  else if (av.m.size(av.top()) >= p.atomic_load(at(Shared::kTrimThreshold)))
    systrim(av, settings_.top_pad);
}

// Empties the fastbins: merges their chunks and puts them into the unsorted list or top.
template <Platform P>
void Ptmalloc<P>::consolidate(const Arena<P>& av) {
  P& p = av.m.p;
  const Frame frame(p, places::kConsolidate);
  av.set_have_fast(false);
  for (unsigned i = 0; i < kFastbins; ++i) {
    Addr c = p.atomic_exchange(av.fastbin(i), 0);
    while (c != 0) {
      const Addr after = av.m.fd(c);
      consolidate_chunk(av, c);
      c = after;
    }
  }
}

template <Platform P>
void Ptmalloc<P>::consolidate_chunk(const Arena<P>& av, Addr c) {
  const Chunks<P>& m = av.m;
  const Bins<P> bins(av);
  std::uint64_t size = m.size(c);
  const Addr next = c + size;
  const std::uint64_t next_size = m.size(next);
  av.m.p.cycles(release_.costs.free_arena);
  if (!m.prev_inuse(c)) {
    const std::uint64_t before = m.prev_size(c);
    c -= before;
    size += before;
    bins.unlink(c);
  }
  if (next == av.top()) {
    m.set_head(c, (size + next_size) | kPrevInuse);
    av.set_top(c);
    return;
  }
  if (!m.inuse(next, next_size)) {
    bins.unlink(next);
    size += next_size;
  } else {
    m.clear_prev_inuse(next);
  }
  bins.push_unsorted(c, size);
  m.set_head(c, size | kPrevInuse);
  m.set_foot(c, size);
}

}  // namespace faultline::alloc
