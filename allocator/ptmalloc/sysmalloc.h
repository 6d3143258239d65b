// SPDX-License-Identifier: Apache-2.0
//
// When an arena has nothing left: a mapping for a large block, more break for the main
// arena, more of its heap (or a new heap) for a thread arena.
//
// With hugetlb=1 the break moves to multiples of a huge page and what is large enough is
// advised; with hugetlb >= 2 it never moves, and mappings of huge pages stand in for it.
//
// The main arena asks for the request plus top_pad; as long as the break is its own it
// counts what top already has.  If someone else moved the break, old top is fenced off and
// a second sbrk brings the end to a page boundary.  If the break can't move, a mapping
// stands in for it and the arena is no longer contiguous, for good.
//
// Stands for: sysmalloc, sysmalloc_mmap_fallback, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Addr Ptmalloc<P>::sysmalloc(const Arena<P>& av, std::uint64_t nb) {
  P& p = av.m.p;
  const Frame frame(p, places::kSysmalloc);
  bool tried_mmap = false;
  if (av.at() == 0 || (nb >= p.atomic_load(at(Shared::kMmapThreshold)) &&
                       p.atomic_load(at(Shared::kMmaps)) < settings_.mmap_max)) {
    if (const Addr mem = mmap_chunk(p, nb)) return mem;
    tried_mmap = true;
  }
  if (av.at() == 0) return 0;
  if (av.is_main()) {
    grow_main(av, nb);
  } else if (!grow_thread_arena(av, nb) && !tried_mmap) {
    if (const Addr mem = mmap_chunk(p, nb)) return mem;
  }
  if (av.system_mem() > av.max_system_mem()) av.set_max_system_mem(av.system_mem());
  return from_top(av, nb);
}

template <Platform P>
void Ptmalloc<P>::grow_main(const Arena<P>& av, std::uint64_t nb) {
  P& p = av.m.p;
  const Addr old_top = av.top();
  const std::uint64_t old_size = av.m.size(old_top);
  const Region region = more_core(av, nb, old_size);
  if (!region.ok) return;
  if (p.atomic_load(at(Shared::kSbrkBase)) == 0)
    p.atomic_store(at(Shared::kSbrkBase), region.start);
  av.add_system_mem(region.size);
  const Addr old_end = old_top + old_size;
  if (region.start == old_end && region.end == 0) {
    av.m.set_head(old_top, (old_size + region.size) | kPrevInuse);
    return;
  }
  if (av.contiguous() && old_size != 0 && region.start < old_end)
    malloc_printerr("break adjusted to free malloc space");
  extend_main(av, region, old_top, old_size);
}

// At least `nb` more bytes and the pad: by sbrk, else by mmap.
template <Platform P>
typename Ptmalloc<P>::Region Ptmalloc<P>::more_core(const Arena<P>& av, std::uint64_t nb,
                                                    std::uint64_t old_size) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;  // MMAP_AS_MORECORE_SIZE
  P& p = av.m.p;
  Region r;
  r.size = nb + settings_.top_pad + kMinSize;
  if (av.contiguous()) r.size -= old_size;
  r.size = break_growth(p, r.size);
  if (static_cast<std::int64_t>(r.size) > 0 && !huge_.hp_arenas) {
    const SysValue brk = p.sbrk(static_cast<std::int64_t>(r.size));
    if (brk.ok()) {
      r.start = brk.value;
      r.ok = true;
      madvise_thp(p, r.start, r.size);
      return r;
    }
  }
  if (huge_.hp_arenas) {
    const Region huge = map_core(av, nb, old_size, r.size, huge_.hp_pagesize,
                                 huge_.hp_pagesize, huge_.hp_flags);
    if (huge.ok) return huge;
  }
  if (release_.mmap_fallback == MmapFallback::kSwapped)
    return map_core(av, nb, old_size, r.size, page(p), kMiB, 0);
  return map_core(av, nb, old_size, r.size, kMiB, page(p), 0);
}

// A break that moves by `size` or a little more: to the end of a page, or of a huge one.
template <Platform P>
std::uint64_t Ptmalloc<P>::break_growth(P& p, std::uint64_t size) {
  if (huge_.thp_pagesize == 0) return align_up(size, page(p));
  const bool unknown =
      release_.first_break_unknown && p.atomic_load(at(Shared::kSbrkBase)) == 0;
  const Addr here = unknown ? 0 : p.sbrk(0).value;
  return align_up(here + size, huge_.thp_pagesize) - here;
}

// sysmalloc_mmap_fallback: a mapping stands in for the break.  The arena has holes from now
// on.
template <Platform P>
typename Ptmalloc<P>::Region Ptmalloc<P>::map_core(const Arena<P>& av, std::uint64_t nb,
                                                   std::uint64_t old_size,
                                                   std::uint64_t size, std::uint64_t least,
                                                   std::uint64_t unit, unsigned flags) {
  P& p = av.m.p;
  Region r;
  if (av.contiguous())
    size = align_up(size + old_size, unit);
  else if (flags != 0)
    size = align_up(size, unit);
  r.size = std::max(size, least);
  if (r.size <= nb) return r;
  const SysValue map = p.mmap(0, r.size, sys::kProtRead | sys::kProtWrite,
                              sys::kMapPrivate | sys::kMapAnonymous | flags);
  if (!map.ok()) return r;
  if (flags == 0) madvise_thp(p, map.value, r.size);
  av.set_noncontiguous();
  r.start = map.value;
  r.end = map.value + r.size;
  r.ok = true;
  return r;
}

// What is at least as large as a huge page is advised, from its first page on.
template <Platform P>
void Ptmalloc<P>::madvise_thp(P& p, Addr start, std::uint64_t size) {
  if (!huge_.advises || size < huge_.thp_pagesize) return;
  const Addr from =
      release_.advice_from_below ? align_down(start, page(p)) : align_up(start, page(p));
  p.madvise(from, start + size - from, sys::kMadvHugepage);
}

// A region that doesn't continue top: becomes the new top, aligned; old top is fenced off.
template <Platform P>
void Ptmalloc<P>::extend_main(const Arena<P>& av, Region region, Addr old_top,
                              std::uint64_t old_size) {
  P& p = av.m.p;
  const Addr start = align_up(region.start, kMallocAlignment);
  std::uint64_t correction = 0;
  Addr end = region.end;
  if (av.contiguous()) {
    if (old_size != 0) av.add_system_mem(region.start - (old_top + old_size));
    correction = start - region.start + old_size;
    const Addr wanted = region.start + region.size + correction;
    correction += align_up(wanted, page(p)) - wanted;
    SysValue brk = p.sbrk(static_cast<std::int64_t>(correction));
    if (brk.ok()) {
      madvise_thp(p, brk.value, correction);
    } else {
      correction = 0;
      brk = p.sbrk(0);
    }
    end = brk.value;
  } else if (end == 0) {
    end = p.sbrk(0).value;
  }
  av.set_top(start);
  av.m.set_head(start, (end - start + correction) | kPrevInuse);
  av.add_system_mem(correction);
  if (old_size != 0) fence_old_top(av, old_top, old_size);
}

// Two chunks of 16 bytes that look used keep old top from ever being merged past its end.
template <Platform P>
void Ptmalloc<P>::fence_old_top(const Arena<P>& av, Addr old_top, std::uint64_t old_size) {
  const Chunks<P>& m = av.m;
  const std::uint64_t size = align_down(old_size - 2 * kHeader, kMallocAlignment);
  m.set_head(old_top, size | kPrevInuse);
  m.set_head(old_top + size, kHeader | kPrevInuse);
  m.set_head(old_top + size + kHeader, kHeader | kPrevInuse);
  if (size >= kMinSize) free_cut(av, old_top, release_.old_top_to_tcache);
}

template <Platform P>
bool Ptmalloc<P>::grow_thread_arena(const Arena<P>& av, std::uint64_t nb) {
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  const Addr old_top = av.top();
  const std::uint64_t old_size = m.size(old_top);
  const Addr heap = heap_start(old_top);
  const std::uint64_t heap_size = m.word(heap + heap_info::kSize);
  const std::uint64_t more = kMinSize + nb - old_size;
  if (static_cast<std::int64_t>(more) > 0 && grow_heap(p, heap, more)) {
    const std::uint64_t now = m.word(heap + heap_info::kSize);
    av.add_system_mem(now - heap_size);
    m.set_head(old_top, (heap + now - old_top) | kPrevInuse);
    return true;
  }
  const Addr fresh =
      new_heap(p, nb + kMinSize + release_.heap_info_bytes, settings_.top_pad);
  if (fresh == 0) return false;
  const std::uint64_t size = m.word(fresh + heap_info::kSize);
  m.set_word(fresh + heap_info::kArena, av.at());
  m.set_word(fresh + heap_info::kPrev, heap);
  av.add_system_mem(size);
  av.set_top(fresh + release_.heap_info_bytes);
  m.set_head(av.top(), (size - release_.heap_info_bytes) | kPrevInuse);
  leave_heap(av, old_top, old_size);
  return true;
}

// Ends the heap behind old top with a fence (a chunk of 16 bytes and one of size 0) and
// frees what remains of old top.
template <Platform P>
void Ptmalloc<P>::leave_heap(const Arena<P>& av, Addr old_top, std::uint64_t old_size) {
  const Chunks<P>& m = av.m;
  const std::uint64_t size = align_down(old_size - kMinSize, kMallocAlignment);
  m.set_head(old_top + size + kHeader, kPrevInuse);
  if (size >= kMinSize) {
    m.set_head(old_top + size, kHeader | kPrevInuse);
    m.set_foot(old_top + size, kHeader);
    m.set_head(old_top, size | kPrevInuse | kNonMainArena);
    free_cut(av, old_top, release_.old_top_to_tcache);
  } else {
    m.set_head(old_top, (size + kHeader) | kPrevInuse);
    m.set_foot(old_top, size + kHeader);
  }
}

}  // namespace faultline::alloc
