// SPDX-License-Identifier: Apache-2.0
//
// Is the heap consistent?  Walks every arena's bins and every chunk of its heaps and holds
// one against the other.  For tests; no other thread may be at work.
#pragma once

#include <map>
#include <string>

#include "allocator/ptmalloc/ptmalloc.h"

namespace faultline::alloc {

template <Platform P>
class HeapCheck {
 public:
  HeapCheck(P& p, const Ptmalloc<P>& heap) : p_(p), heap_(heap), m_(p) {}

  // What is wrong, first finding only; empty if nothing is.
  std::string run() {
    Addr at = heap_.main_arena_address();
    do {
      check_arena(heap_.arena(p_, at));
      at = heap_.arena(p_, at).next();
    } while (at != heap_.main_arena_address() && error_.empty());
    return error_;
  }
  [[nodiscard]] std::uint64_t chunks_seen() const { return seen_; }

 private:
  void fail(const char* what, Addr at) {
    if (error_.empty()) error_ = std::string(what) + " at " + std::to_string(at);
  }

  void check_arena(const Arena<P>& av) {
    free_.clear();
    if (heap_.release().fastbins) check_fastbins(av);
    for (unsigned i = 1; i < kBins && error_.empty(); ++i) check_bin(av, i);
    if (error_.empty() && av.top() != av.unsorted()) check_heaps(av);
  }

  void check_fastbins(const Arena<P>& av) {
    for (unsigned i = 0; i < kFastbins; ++i)
      for (Addr c = m_.word(av.fastbin(i)); c != 0; c = m_.fd(c))
        if (fastbin_index(m_.size(c)) != i) return fail("chunk in a wrong fastbin", c);
  }

  void check_bin(const Arena<P>& av, unsigned index) {
    const Addr bin = av.bin(index);
    Addr before = bin;
    std::uint64_t last_size = UINT64_MAX;
    for (Addr c = m_.fd(bin); c != bin; before = c, c = m_.fd(c)) {
      const std::uint64_t size = m_.size(c);
      if (m_.bk(c) != before) return fail("broken back link", c);
      if (!free_.emplace(c, size).second) return fail("chunk in two bins", c);
      if (m_.prev_size(c + size) != size) return fail("foot isn't the size", c);
      if (index == kUnsorted) continue;
      if (bin_index(size) != index) return fail("chunk in a wrong bin", c);
      if (size > last_size) return fail("bin isn't sorted", c);
      if (!is_small(size) && (m_.fd_nextsize(c) != 0) != (size != last_size) &&
          size != last_size)
        return fail("first of its size is not on the skip list", c);
      last_size = size;
      if ((av.map_block(index / 32) >> index % 32 & 1) == 0)
        return fail("binmap says empty", c);
    }
    if (m_.bk(bin) != before) return fail("bin's last isn't the last", bin);
    if (index > kUnsorted && index >= 64) check_sizes(bin);
  }

  // The skip list holds each size once, in the order of the list, and closes.
  void check_sizes(Addr bin) {
    const Addr first = m_.fd(bin);
    if (first == bin) return;
    Addr on_list = first;
    for (Addr c = first; c != bin; c = m_.fd(c)) {
      if (m_.size(c) == m_.size(on_list)) continue;
      if (m_.fd_nextsize(on_list) != c) return fail("skip list misses a size", c);
      if (m_.bk_nextsize(c) != on_list) return fail("skip list's back link", c);
      on_list = c;
    }
    if (m_.fd_nextsize(on_list) != first || m_.bk_nextsize(first) != on_list)
      fail("skip list isn't closed", on_list);
  }

  void check_heaps(const Arena<P>& av) {
    std::uint64_t found = 0;
    if (av.is_main()) {
      if (!av.contiguous()) return;
      found = walk(av, align_up(heap_.shared(p_, Shared::kSbrkBase), kMallocAlignment));
    } else {
      std::uint64_t bytes = 0;
      for (Addr heap = heap_.heap_start(av.top()); heap != 0;
           heap = m_.word(heap + heap_info::kPrev)) {
        const bool first = m_.word(heap + heap_info::kPrev) == 0;
        const Addr start = heap + heap_.release().heap_info_bytes +
                           (first ? heap_.release().malloc_state_bytes : 0);
        found += walk(av, align_up(start, kMallocAlignment));
        bytes += m_.word(heap + heap_info::kSize);
      }
      if (bytes != av.system_mem()) fail("system_mem isn't the sum of the heaps", av.at());
    }
    if (error_.empty() && found != free_.size())
      fail("bins hold chunks that no heap has", av.at());
  }

  // Goes from chunk to chunk up to top or a fence; answers how many are free.
  std::uint64_t walk(const Arena<P>& av, Addr c) {
    std::uint64_t found = 0;
    bool before_free = false;
    for (; c != av.top(); c += m_.size(c)) {
      const std::uint64_t size = m_.size(c);
      ++seen_;
      if (m_.prev_inuse(c) == before_free) fail("in-use bit is wrong", c);
      if (size <= kHeader) return found;  // the fence at a heap's end
      if (size % kMallocAlignment != 0) fail("size isn't aligned", c);
      const bool is_free = free_.contains(c);
      if (is_free && free_[c] != size) fail("size differs from the bin's", c);
      if (is_free && before_free) fail("two free neighbours", c);
      if (!is_free && (m_.head(c) & kNonMainArena) != av.mark() && m_.inuse(c, size))
        fail("wrong arena mark", c);
      found += is_free ? 1 : 0;
      before_free = is_free;
      if (!error_.empty()) return found;
    }
    if (m_.prev_inuse(c) == before_free) fail("in-use bit of top", c);
    return found;
  }

  P& p_;
  const Ptmalloc<P>& heap_;
  Chunks<P> m_;
  std::map<Addr, std::uint64_t> free_;  // chunks in the bins of the arena at hand
  std::uint64_t seen_ = 0;
  std::string error_;
};

}  // namespace faultline::alloc
