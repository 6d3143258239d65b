// SPDX-License-Identifier: Apache-2.0
//
// Allocation in an arena: where a chunk is looked for, in order.
//
//   fastbin of the size, small bin of the size, [fast chunks consolidated for a large
//   request], the unsorted list (filing what doesn't fit), the request's own large bin, the
//   next larger bin that isn't empty, top, [fast chunks consolidated, and again], the
//   kernel.
//
// The caller holds the arena's lock, or there is one thread only.
//
// Stands for: _int_malloc, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// An arena at address 0 is none at all: only a mapping of its own can serve the request
// then.
template <Platform P>
Addr Ptmalloc<P>::int_malloc(const Arena<P>& av, std::uint64_t bytes) {
  P& p = av.m.p;
  const Frame frame(p, places::kIntMalloc);
  if (bytes > release_.max_request) return 0;
  const std::uint64_t nb = chunk_size_for(bytes);
  const Addr mem = av.at() == 0 ? sysmalloc(av, nb) : find_chunk(av, nb);
  if (mem != 0 && settings_.perturb != 0)
    p.set(mem, static_cast<std::uint8_t>(~settings_.perturb), bytes);
  return mem;
}

template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::find_chunk(const Arena<P>& av, std::uint64_t nb) {
  if (const Addr mem = from_fastbin(av, nb)) return mem;
  const Bins<P> bins(av);
  if (is_small(nb)) {
    if (!bins.empty(av.bin(bin_index(nb)))) return from_small_bin(av, nb);
  } else if (release_.fastbins && av.have_fast()) {
    consolidate(av);
  }
  for (;;) {
    if (!bins.empty(av.unsorted()))
      if (const Addr mem = from_unsorted(av, nb)) return mem;
    if (const Addr mem = from_bins(av, nb)) return mem;
    if (const Addr mem = from_top(av, nb)) return mem;
    if (!release_.fastbins || !av.have_fast()) return sysmalloc(av, nb);
    consolidate(av);
  }
}

// Takes the newest chunk off a fastbin.  Others put chunks there without the lock, but only
// the holder of the lock takes them, so that the list below the head stays.
template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::pop_fast(P& p, Addr head) {
  const Chunks<P> m(p);
  if (alone(p)) {
    const Addr c = m.word(head);
    if (c != 0) m.set_word(head, m.fd(c));
    return c;
  }
  for (;;) {
    const Addr c = p.atomic_load(head);
    if (c == 0 || p.compare_exchange(head, c, m.fd(c))) return c;
  }
}

template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::from_fastbin(const Arena<P>& av, std::uint64_t nb) {
  if (nb > max_fast_) return 0;
  P& p = av.m.p;
  const Addr head = av.fastbin(fastbin_index(nb));
  const Addr c = pop_fast(p, head);
  if (c == 0) return 0;
  if (fastbin_index(av.m.size(c)) != fastbin_index(nb))
    malloc_printerr("malloc(): memory corruption (fast)");
  p.cycles(release_.costs.arena_quick);
  fill_cache(p, nb, [&] { return pop_fast(p, head); });
  return to_mem(c);
}

// Precondition: the bin is not empty.
template <Platform P>
Addr Ptmalloc<P>::from_small_bin(const Arena<P>& av, std::uint64_t nb) {
  P& p = av.m.p;
  const Bins<P> bins(av);
  const Addr bin = av.bin(bin_index(nb));
  const auto take = [&](Addr c) {
    av.m.set_inuse(c, nb);
    if (!av.is_main()) av.m.add_flag(c, kNonMainArena);
    bins.pop_last(bin, c);
  };
  const Addr c = bins.last(bin);
  take(c);
  p.cycles(release_.costs.arena_quick);
  fill_cache(p, nb, [&]() -> Addr {
    const Addr more = bins.last(bin);
    if (more == bin) return 0;
    take(more);
    return more;
  });
  return to_mem(c);
}

// Goes through the unsorted list from its oldest chunk.  An exact fit is taken (into the
// thread's cache first, while there is room), the last remainder is split if a small
// request finds it alone, all else is filed.
template <Platform P>
Addr Ptmalloc<P>::from_unsorted(const Arena<P>& av, std::uint64_t nb) {
  constexpr int kMaxScan = 10000;
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  const Bins<P> bins(av);
  const Addr list = av.unsorted();
  bool cached = false;
  for (int scanned = 0; scanned < kMaxScan; ++scanned) {
    const Addr c = bins.last(list);
    if (c == list) break;
    const std::uint64_t size = m.size(c);
    if (m.prev_size(c + size) != size || m.prev_inuse(c + size))
      malloc_printerr("malloc(): invalid chunk in the unsorted list");
    const bool only = m.bk(c) == list;
    bins.pop_last(list, c);
    if (only && is_small(nb) && size > nb + kMinSize && c == av.last_remainder()) {
      p.cycles(release_.costs.arena_bins);
      return carve(av, c, size, nb, true);
    }
    if (size != nb) {
      bins.file(c, size);
      continue;
    }
    take_back_chunk(p, c, size, size);
    m.set_inuse(c, size);
    if (!av.is_main()) m.add_flag(c, kNonMainArena);
    if (!release_.tcache_from_unsorted || !cache_has_room(p, nb)) {
      p.cycles(release_.costs.arena_bins);
      return to_mem(c);
    }
    cache(p, c, nb);
    cached = true;
  }
  if (!cached) return 0;
  p.cycles(release_.costs.arena_bins);
  const Tcache<P> tc(p, p.thread_words().word[kTcache], tcache_shape_);
  return tc.get(tcache_index(nb), release_.tcache_key);
}

// The best fit in the request's own large bin, else any chunk of the next larger size that
// exists.
template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::from_bins(const Arena<P>& av, std::uint64_t nb) {
  const Bins<P> bins(av);
  const Addr own = is_small(nb) ? 0 : bins.best_fit(nb);
  const Addr c = own != 0 ? own : bins.from_next_bin(bin_index(nb) + 1);
  return c == 0 ? 0 : from_bin(av, c, nb, own == 0 && is_small(nb));
}

// The start of `c`, which lies in a bin.
template <Platform P>
Addr Ptmalloc<P>::from_bin(const Arena<P>& av, Addr c, std::uint64_t nb, bool remember) {
  const Bins<P> bins(av);
  av.m.p.cycles(release_.costs.arena_bins);
  const std::uint64_t size = av.m.size(c);
  bins.unlink(c);
  return carve(av, c, size, nb, remember);
}

// The first `nb` bytes of a free chunk that is in no list; the rest goes to the unsorted
// list, or along with it if it is too small to be a chunk.
template <Platform P>
Addr Ptmalloc<P>::carve(const Arena<P>& av, Addr c, std::uint64_t size, std::uint64_t nb,
                        bool remember) {
  const Chunks<P>& m = av.m;
  const std::uint64_t rest = size - nb;
  take_back_chunk(m.p, c, size, nb);
  if (rest < kMinSize) {
    m.set_inuse(c, size);
    if (!av.is_main()) m.add_flag(c, kNonMainArena);
    return to_mem(c);
  }
  const Addr remainder = c + nb;
  Bins<P>(av).push_unsorted(remainder, rest);
  if (remember) av.set_last_remainder(remainder);
  m.set_head(c, nb | kPrevInuse | av.mark());
  m.set_head(remainder, rest | kPrevInuse);
  m.set_foot(remainder, rest);
  return to_mem(c);
}

template <Platform P>
FAULTLINE_INLINE Addr Ptmalloc<P>::from_top(const Arena<P>& av, std::uint64_t nb) {
  const Addr top = av.top();
  const std::uint64_t size = av.m.size(top);
  if (size < nb + kMinSize) return 0;
  av.m.p.cycles(release_.costs.arena_top);
  take_back_chunk(av.m.p, top, size, nb);
  av.set_top(top + nb);
  av.m.set_head(top, nb | kPrevInuse | av.mark());
  av.m.set_head(top + nb, (size - nb) | kPrevInuse);
  return to_mem(top);
}

}  // namespace faultline::alloc
