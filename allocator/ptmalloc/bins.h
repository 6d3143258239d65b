// SPDX-License-Identifier: Apache-2.0
//
// Free chunks in the bins of an arena: into a bin, out of it, and which one fits.
//
// A small bin holds one size, first in first out.  A large bin is sorted, largest first;
// the first chunk of each size is also on a circular skip list over the sizes, so that a
// fit is found without a walk over equals.  The caller holds the arena's lock.
//
// Stands for: unlink_chunk and the bin code of _int_malloc and _int_free, malloc/malloc.c.
#pragma once

#include <bit>

#include "allocator/ptmalloc/arena.h"
#include "allocator/ptmalloc/fatal.h"

namespace faultline::alloc {

template <typename P>
class Bins {
 public:
  explicit Bins(const Arena<P>& arena) : av_(arena), m_(arena.m) {}

  [[nodiscard]] Addr first(Addr bin) const { return m_.fd(bin); }
  [[nodiscard, gnu::always_inline]] Addr last(Addr bin) const { return m_.bk(bin); }
  [[nodiscard, gnu::always_inline]] bool empty(Addr bin) const { return last(bin) == bin; }

  // Takes the free chunk `c` out of whichever list it is in.
  FAULTLINE_INLINE void unlink(Addr c) const;
  // Puts a free chunk at the front of the unsorted list; header and foot are the caller's.
  FAULTLINE_INLINE void push_unsorted(Addr c, std::uint64_t size) const;
  // Takes the oldest chunk out of the unsorted list or out of a small bin.
  FAULTLINE_INLINE void pop_last(Addr bin, Addr c) const;
  // Files a chunk in the bin of its size.
  void file(Addr c, std::uint64_t size) const;

  // The smallest chunk of at least `nb` in nb's own large bin; 0 if none.  Of equal ones
  // the second is taken, so that the skip list need not change.
  [[nodiscard]] Addr best_fit(std::uint64_t nb) const;
  // The last chunk of the next non-empty bin from `index` on; 0 if all are empty.
  [[nodiscard]] Addr from_next_bin(unsigned index) const;

 private:
  void unlink_size(Addr c, Addr forward) const;
  [[nodiscard]] Addr sorted_place(Addr bin, Addr c, std::uint64_t size) const;

  const Arena<P>& av_;
  const Chunks<P>& m_;
};

template <typename P>
void Bins<P>::unlink(Addr c) const {
  const std::uint64_t size = m_.size(c);
  if (m_.prev_size(c + size) != size) malloc_printerr("corrupted size vs. prev_size");
  const Addr forward = m_.fd(c);
  const Addr back = m_.bk(c);
  m_.set_bk(forward, back);
  m_.set_fd(back, forward);
  if (!is_small(size) && m_.fd_nextsize(c) != 0) unlink_size(c, forward);
}

// `c` was the first of its size: its successor takes its place on the skip list if it is of
// the same size (it has no links there yet), else the size is gone.
template <typename P>
void Bins<P>::unlink_size(Addr c, Addr forward) const {
  const Addr smaller = m_.fd_nextsize(c);
  const Addr larger = m_.bk_nextsize(c);
  if (m_.fd_nextsize(forward) != 0) {
    m_.set_bk_nextsize(smaller, larger);
    m_.set_fd_nextsize(larger, smaller);
  } else if (smaller == c) {
    m_.set_fd_nextsize(forward, forward);
    m_.set_bk_nextsize(forward, forward);
  } else {
    m_.set_fd_nextsize(forward, smaller);
    m_.set_bk_nextsize(forward, larger);
    m_.set_bk_nextsize(smaller, forward);
    m_.set_fd_nextsize(larger, forward);
  }
}

template <typename P>
void Bins<P>::push_unsorted(Addr c, std::uint64_t size) const {
  const Addr bin = av_.unsorted();
  const Addr forward = m_.fd(bin);
  m_.set_fd(c, forward);
  m_.set_bk(c, bin);
  if (!is_small(size)) {
    m_.set_fd_nextsize(c, 0);
    m_.set_bk_nextsize(c, 0);
  }
  m_.set_fd(bin, c);
  m_.set_bk(forward, c);
}

template <typename P>
void Bins<P>::pop_last(Addr bin, Addr c) const {
  const Addr back = m_.bk(c);
  m_.set_bk(bin, back);
  m_.set_fd(back, bin);
}

template <typename P>
void Bins<P>::file(Addr c, std::uint64_t size) const {
  const unsigned index = bin_index(size);
  const Addr bin = av_.bin(index);
  const Addr forward = is_small(size) ? first(bin) : sorted_place(bin, c, size);
  const Addr back = m_.bk(forward);
  av_.mark_bin(index);
  m_.set_bk(c, back);
  m_.set_fd(c, forward);
  m_.set_bk(forward, c);
  m_.set_fd(back, c);
}

// The chunk that `c` shall lie before; puts c on the skip list if its size is new there.
template <typename P>
Addr Bins<P>::sorted_place(Addr bin, Addr c, std::uint64_t size) const {
  if (first(bin) == bin) {
    m_.set_fd_nextsize(c, c);
    m_.set_bk_nextsize(c, c);
    return bin;
  }
  // Smaller than all: the common case has no walk.  Its place is the end of the list, and
  // of the skip list.
  const bool smallest = size < m_.size(last(bin));
  Addr at = first(bin);
  if (!smallest) {
    while (size < m_.size(at)) at = m_.fd_nextsize(at);
    if (size == m_.size(at))
      return m_.fd(at);  // second of its size: no change to the skip list
  }
  const Addr larger = m_.bk_nextsize(at);
  m_.set_fd_nextsize(c, at);
  m_.set_bk_nextsize(c, larger);
  m_.set_bk_nextsize(at, c);
  m_.set_fd_nextsize(larger, c);
  return smallest ? bin : at;
}

template <typename P>
Addr Bins<P>::best_fit(std::uint64_t nb) const {
  const Addr bin = av_.bin(bin_index(nb));
  Addr c = first(bin);
  if (c == bin || m_.size(c) < nb) return 0;
  do c = m_.bk_nextsize(c);
  while (m_.size(c) < nb);
  if (c != last(bin) && m_.size(c) == m_.size(m_.fd(c))) c = m_.fd(c);
  return c;
}

template <typename P>
FAULTLINE_INLINE Addr Bins<P>::from_next_bin(unsigned index) const {
  std::uint64_t wanted = ~std::uint64_t{0} << index % 64;
  for (unsigned pair = index / 64; pair < kBins / 64; ++pair) {
    for (std::uint64_t bits = av_.map_word(pair) & wanted; bits != 0; bits &= bits - 1) {
      const unsigned i = 64 * pair + static_cast<unsigned>(std::countr_zero(bits));
      const Addr c = last(av_.bin(i));
      if (c != av_.bin(i)) return c;
      av_.set_map_block(i / 32, av_.map_block(i / 32) & ~(1u << i % 32));
    }
    wanted = ~std::uint64_t{0};
  }
  return 0;
}

}  // namespace faultline::alloc
