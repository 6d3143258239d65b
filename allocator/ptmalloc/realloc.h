// SPDX-License-Identifier: Apache-2.0
//
// realloc: in place where it can be (into top, into a free neighbour, by mremap), else a
// new block.
//
// Stands for: realloc, _int_realloc, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Addr Ptmalloc<P>::realloc(P& p, Addr mem, std::uint64_t bytes) {
  if (mem == 0) return malloc(p, bytes);
  if (bytes == 0) {
    free(p, mem);
    return 0;
  }
  const Frame frame(p, places::kRealloc);
  if (bytes > release_.max_request) return 0;
  const std::uint64_t fits = malloc_usable_size(p, mem);
  if (release_.realloc_fit != ReallocFit::kSplit && bytes <= fits &&
      (release_.realloc_fit == ReallocFit::kKeepIfFits || fits - bytes < kMallocAlignment))
    return mem;
  const Addr c = to_chunk(mem);
  const std::uint64_t head = Chunks<P>(p).head(c);
  const std::uint64_t nb = chunk_size_for(bytes);
  if ((head & kIsMmapped) != 0) return realloc_mmapped(p, mem, bytes, nb);

  thread_cache(p);
  const std::uint64_t old_size = head & ~kSizeBits;
  const Arena<P> av = arena_of(p, c, head);
  if (alone(p)) return int_realloc(av, c, old_size, nb);
  lock(p, av);
  Addr fresh = int_realloc(av, c, old_size, nb);
  p.unlock(av.lock());
  if (fresh != 0) return fresh;
  // Its arena has nothing left; another may.
  fresh = malloc(p, bytes);
  if (fresh == 0) return 0;
  p.copy(fresh, mem, old_size - kWord);
  int_free(av, c, Held::kNo);
  return fresh;
}

template <Platform P>
Addr Ptmalloc<P>::realloc_mmapped(P& p, Addr mem, std::uint64_t bytes, std::uint64_t nb) {
  Addr c = to_chunk(mem);
  if (mremap_chunk(p, c, nb)) return to_mem(c);
  const std::uint64_t fits = malloc_usable_size(p, mem);
  if (fits + kWord >= nb) return mem;
  const Addr fresh = malloc(p, bytes);
  if (fresh == 0) return 0;
  p.copy(fresh, mem, fits);
  munmap_chunk(p, c);
  return fresh;
}

// The caller holds the arena's lock.
template <Platform P>
Addr Ptmalloc<P>::int_realloc(const Arena<P>& av, Addr c, std::uint64_t old_size,
                              std::uint64_t nb) {
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  const Frame frame(p, places::kIntRealloc);
  const Addr next = c + old_size;
  const std::uint64_t next_size = m.size(next);
  std::uint64_t size = old_size;
  if (old_size < nb) {
    const std::uint64_t both = old_size + next_size;
    if (next == av.top() && both >= nb + kMinSize) {
      take_back_chunk(p, next, next_size, nb - old_size);
      m.set_head_size(c, nb);
      av.set_top(c + nb);
      m.set_head(c + nb, (both - nb) | kPrevInuse);
      return to_mem(c);
    }
    if (next != av.top() && !m.inuse(next, next_size) && both >= nb) {
      Bins<P>(av).unlink(next);
      take_back_chunk(p, next, next_size, nb - old_size);
      size = both;
    } else {
      const Addr fresh = int_malloc(av, nb - (kMallocAlignment - 1));
      if (fresh == 0) return 0;
      if (to_chunk(fresh) != next) {
        p.copy(fresh, to_mem(c), old_size - kWord);
        free_cut(av, c, release_.realloc_cuts_to_tcache);
        return fresh;
      }
      size = old_size + m.size(next);
    }
  }
  trim_to(av, c, size, nb);
  return to_mem(c);
}

// A chunk in use of `size` keeps `nb` of it; the rest is freed if it is enough for a chunk.
template <Platform P>
void Ptmalloc<P>::trim_to(const Arena<P>& av, Addr c, std::uint64_t size,
                          std::uint64_t nb) {
  const Chunks<P>& m = av.m;
  const std::uint64_t rest = size - nb;
  if (rest < kMinSize) {
    m.set_head_size(c, size);
    m.set_inuse(c, size);
    return;
  }
  m.set_head_size(c, nb);
  m.set_head(c + nb, rest | kPrevInuse | av.mark());
  m.set_inuse(c + nb, rest);
  free_cut(av, c + nb, release_.realloc_cuts_to_tcache);
}

}  // namespace faultline::alloc
