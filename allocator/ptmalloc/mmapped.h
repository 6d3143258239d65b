// SPDX-License-Identifier: Apache-2.0
//
// Large blocks with a mapping of their own, and the rule that learns from their frees.
//
// Only the header at the start of the mapping is ever written.  Freeing a block that is
// larger than the threshold (and not above 32 MiB) raises the threshold to its size and the
// trim threshold to twice that: the next block of this size comes from the heap.
//
// Stands for: sysmalloc_mmap, munmap_chunk, mremap_chunk, malloc/malloc.c
// (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Addr Ptmalloc<P>::mmap_chunk(P& p, std::uint64_t nb) {
  if (huge_.hp_pagesize != 0 && nb >= huge_.hp_pagesize)
    if (const Addr mem = map_chunk(p, nb, huge_.hp_pagesize, huge_.hp_flags)) return mem;
  return map_chunk(p, nb, page(p), 0);
}

template <Platform P>
Addr Ptmalloc<P>::map_chunk(P& p, std::uint64_t nb, std::uint64_t unit, unsigned flags) {
  const std::uint64_t size = align_up(nb + release_.mmap_overhead, unit);
  if (size <= nb) return 0;
  const SysValue map = p.mmap(0, size, sys::kProtRead | sys::kProtWrite,
                              sys::kMapPrivate | sys::kMapAnonymous | flags);
  if (!map.ok()) return 0;
  if (flags == 0) madvise_thp(p, map.value, size);
  const Chunks<P> m(p);
  m.set_word(map.value, flags != 0 && release_.hugetlb_marks_blocks ? kIsHugetlb : 0);
  m.set_head(map.value, (size - release_.mmap_hidden) | kIsMmapped);
  p.atomic_add(at(Shared::kMmaps), 1);
  p.atomic_add(at(Shared::kMmappedMem), size);
  return to_mem(map.value);
}

template <Platform P>
void Ptmalloc<P>::free_mmapped(P& p, Addr c, std::uint64_t head) {
  const std::uint64_t size = head & ~kSizeBits;
  if (settings_.dynamic_threshold && size > p.atomic_load(at(Shared::kMmapThreshold)) &&
      size <= kMmapThresholdMax) {
    p.atomic_store(at(Shared::kMmapThreshold), size);
    p.atomic_store(at(Shared::kTrimThreshold), 2 * size);
  }
  munmap_chunk(p, c);
}

// An error of munmap is ignored: the block is lost.
template <Platform P>
void Ptmalloc<P>::munmap_chunk(P& p, Addr c) {
  const Frame frame(p, places::kMunmapChunk);
  const Chunks<P> m(p);
  const std::uint64_t before = m.prev_size(c) & ~kIsHugetlb;
  const std::uint64_t total = before + m.size(c) + release_.mmap_hidden;
  p.atomic_add(at(Shared::kMmaps), ~std::uint64_t{0});
  p.atomic_add(at(Shared::kMmappedMem), 0 - total);
  p.munmap(c - before, total);
}

// Grows or shrinks the mapping so that its chunk holds `nb`; false if the kernel refuses.
template <Platform P>
bool Ptmalloc<P>::mremap_chunk(P& p, Addr& c, std::uint64_t nb) {
  const Frame frame(p, places::kMremapChunk);
  const Chunks<P> m(p);
  const std::uint64_t before = m.prev_size(c) & ~kIsHugetlb;
  const std::uint64_t unit =
      (m.prev_size(c) & kIsHugetlb) != 0 ? huge_.hp_pagesize : page(p);
  const std::uint64_t old_total = before + m.size(c) + release_.mmap_hidden;
  const std::uint64_t total = align_up(nb + before + release_.mmap_overhead, unit);
  if (total == old_total) return true;
  const SysValue map = p.mremap(c - before, old_total, total, sys::kMremapMaymove);
  if (!map.ok()) return false;
  if (release_.mremap_advises || old_total < huge_.thp_pagesize)
    madvise_thp(p, map.value, total);
  c = map.value + before;
  m.set_head(c, (total - before - release_.mmap_hidden) | kIsMmapped);
  p.atomic_add(at(Shared::kMmappedMem), total - old_total);
  return true;
}

}  // namespace faultline::alloc
