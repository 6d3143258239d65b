// SPDX-License-Identifier: Apache-2.0
//
// The heaps of thread arenas: 64 MiB of address space, aligned to 64 MiB so that any chunk
// finds the start of its heap by masking (with hugetlb >= 2, to 2.41: 4 huge pages).
//
// A heap is reserved without access and opened from the front by mprotect, without padding
// once it exists.  Shrinking gives the pages back but leaves them open, so that growing
// again up to there needs no call.  When it is full a further heap is chained to the arena.
//
// Stands for: new_heap, grow_heap, shrink_heap, heap_trim, malloc/arena.c
// (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// The address of a heap with at least `size` bytes open, `top_pad` more if they fit; 0 if
// none.
template <Platform P>
Addr Ptmalloc<P>::new_heap(P& p, std::uint64_t size, std::uint64_t top_pad) {
  const Frame frame(p, places::kNewHeap);
  if (huge_.hp_arenas)
    if (const Addr heap = new_heap_in(p, size, top_pad, huge_.hp_pagesize, huge_.hp_flags))
      return heap;
  return new_heap_in(p, size, top_pad, huge_.heap_unit, 0);
}

// One that grows by `unit`, mapped with `flags`.
template <Platform P>
Addr Ptmalloc<P>::new_heap_in(P& p, std::uint64_t size, std::uint64_t top_pad,
                              std::uint64_t unit, unsigned flags) {
  if (size > huge_.heap_max) return 0;
  size = std::max(std::min(size + top_pad, huge_.heap_max), huge_.heap_min);
  size = align_up(size, unit);
  const Addr heap = reserve_heap(p, flags);
  if (heap == 0) return 0;
  if (p.mprotect(heap, size, sys::kProtRead | sys::kProtWrite) != 0) {
    p.munmap(heap, huge_.heap_max);
    return 0;
  }
  if (flags == 0) madvise_thp(p, heap, size);
  const Chunks<P> m(p);
  m.set_word(heap + heap_info::kSize, size);
  m.set_word(heap + heap_info::kMprotectSize, size);
  if (release_.heap_info_bytes > heap_info::kPagesize)
    m.set_word(heap + heap_info::kPagesize, unit);
  return heap;
}

template <Platform P>
std::uint64_t Ptmalloc<P>::unit_of(P& p, Addr heap) const {
  return release_.heap_info_bytes > heap_info::kPagesize
             ? Chunks<P>(p).word(heap + heap_info::kPagesize)
             : page(p);
}

// Aligned address space: where the last reservation left a whole heap's worth behind it,
// else out of twice as much, else a single try that may happen to be aligned.
template <Platform P>
Addr Ptmalloc<P>::reserve_heap(P& p, unsigned extra_flags) {
  // Huge pages are reserved with the mapping.
  const bool noreserve = release_.heaps_noreserve && extra_flags == 0;
  const unsigned flags = sys::kMapPrivate | sys::kMapAnonymous | extra_flags |
                         (noreserve ? sys::kMapNoreserve : 0u);
  const std::uint64_t max = huge_.heap_max;
  const auto aligned = [max](Addr a) { return (a & (max - 1)) == 0; };
  if (const Addr hint = p.atomic_exchange(at(Shared::kAlignedHeapArea), 0)) {
    const SysValue map = p.mmap(hint, max, sys::kProtNone, flags);
    if (map.ok() && aligned(map.value)) return map.value;
    if (map.ok()) p.munmap(map.value, max);
  }
  if (const SysValue twice = p.mmap(0, 2 * max, sys::kProtNone, flags); twice.ok()) {
    const Addr heap = align_up(twice.value, max);
    const std::uint64_t lead = heap - twice.value;
    if (lead != 0)
      p.munmap(twice.value, lead);
    else
      p.atomic_store(at(Shared::kAlignedHeapArea), heap + max);
    p.munmap(heap + max, max - lead);
    return heap;
  }
  const SysValue once = p.mmap(0, max, sys::kProtNone, flags);
  if (!once.ok()) return 0;
  if (aligned(once.value)) return once.value;
  p.munmap(once.value, max);
  return 0;
}

template <Platform P>
bool Ptmalloc<P>::grow_heap(P& p, Addr heap, std::uint64_t more) {
  const Frame frame(p, places::kGrowHeap);
  const Chunks<P> m(p);
  const std::uint64_t old_size = m.word(heap + heap_info::kSize);
  const std::uint64_t size = old_size + align_up(more, unit_of(p, heap));
  if (size > huge_.heap_max) return false;
  const std::uint64_t open = m.word(heap + heap_info::kMprotectSize);
  if (size > open) {
    if (p.mprotect(heap + open, size - open, sys::kProtRead | sys::kProtWrite) != 0)
      return false;
    m.set_word(heap + heap_info::kMprotectSize, size);
    if (release_.thp_heaps == ThpHeaps::kAdvisedEach ||
        (release_.thp_heaps == ThpHeaps::kAdvisedFirst && old_size < huge_.thp_pagesize))
      madvise_thp(p, heap, size);
  }
  if (release_.give_back == GiveBack::kVrange && open > old_size)
    take_back(p, heap + old_size, std::min(open, size) - old_size);
  m.set_word(heap + heap_info::kSize, size);
  return true;
}

// Under strict overcommit the pages are mapped anew without access, so that they are not
// charged.
template <Platform P>
bool Ptmalloc<P>::shrink_heap(P& p, Addr heap, std::uint64_t less) {
  const Chunks<P> m(p);
  const std::uint64_t size = m.word(heap + heap_info::kSize) - less;
  if (static_cast<std::int64_t>(size) < static_cast<std::int64_t>(release_.heap_info_bytes))
    return false;
  if (p.facts().overcommit_memory == 2) {
    const unsigned flags = sys::kMapPrivate | sys::kMapAnonymous | sys::kMapFixed;
    if (!p.mmap(heap + size, less, sys::kProtNone, flags).ok()) return false;
    m.set_word(heap + heap_info::kMprotectSize, size);
  } else {
    give_back(p, heap + size, less);
  }
  m.set_word(heap + heap_info::kSize, size);
  return true;
}

// Gives back the last heaps that are all top, then what top has beyond the pad.
template <Platform P>
void Ptmalloc<P>::heap_trim(const Arena<P>& av) {
  P& p = av.m.p;
  const Frame frame(p, places::kHeapTrim);
  const Addr heap = drop_empty_heaps(av);
  const Addr top = av.top();
  const std::uint64_t size = av.m.size(top);
  if (!release_.heap_trim_always && size < p.atomic_load(at(Shared::kTrimThreshold)))
    return;
  const std::uint64_t keep = kMinSize + 1 + settings_.top_pad;
  if (size <= keep) return;
  const std::uint64_t extra = align_down(size - keep, unit_of(p, heap));
  if (extra == 0 || !shrink_heap(p, heap, extra)) return;
  av.add_system_mem(0 - extra);
  av.m.set_head(top, (size - extra) | kPrevInuse);
}

// Unmaps the last heap as long as top is all of it and the heap before has room for a new
// top.
template <Platform P>
Addr Ptmalloc<P>::drop_empty_heaps(const Arena<P>& av) {
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  Addr heap = heap_start(av.top());
  while (av.top() == heap + release_.heap_info_bytes) {
    const Addr before = m.word(heap + heap_info::kPrev);
    const std::uint64_t before_size = m.word(before + heap_info::kSize);
    // From the fence of size 0 at the end of that heap back over the one of 16 to what is
    // free.
    Addr c = before + before_size - kHeader;
    c -= m.prev_size(c);
    std::uint64_t size = m.size(c) + kHeader;
    if (!m.prev_inuse(c)) size += m.prev_size(c);
    const std::uint64_t room = size + (huge_.heap_max - before_size);
    if (room < settings_.top_pad + kMinSize + unit_of(p, heap)) break;
    av.add_system_mem(0 - m.word(heap + heap_info::kSize));
    if (heap + huge_.heap_max == p.atomic_load(at(Shared::kAlignedHeapArea)))
      p.atomic_store(at(Shared::kAlignedHeapArea), 0);
    // Marks outlive a mapping.
    if (release_.give_back == GiveBack::kVrange) take_back(p, heap, huge_.heap_max);
    p.munmap(heap, huge_.heap_max);
    heap = before;
    if (!m.prev_inuse(c)) {
      c -= m.prev_size(c);
      Bins<P>(av).unlink(c);
    }
    av.set_top(c);
    m.set_head(c, size | kPrevInuse);
  }
  return heap;
}

}  // namespace faultline::alloc
