// SPDX-License-Identifier: Apache-2.0
//
// Aligned blocks: more is allocated than asked for; lead and tail are cut off and freed. Of
// a block with its own mapping only the header moves: the lead stays mapped.
//
// Stands for: _mid_memalign, _int_memalign, malloc/malloc.c (glibc 2.23-2.44, without the
// bin scan of 2.38).
#pragma once

#include <bit>

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
Addr Ptmalloc<P>::memalign(P& p, std::uint64_t alignment, std::uint64_t bytes) {
  if (alignment <= kMallocAlignment) return malloc(p, bytes);
  const Frame frame(p, places::kMemalign);
  if (!initialised_.load(std::memory_order_acquire)) [[unlikely]]
    init(p);
  if (alignment > UINT64_MAX / 2 + 1) return 0;
  alignment = std::bit_ceil(std::max(alignment, kMinSize));
  // Too large together: the sum must not wrap round (CVE-2026-0861).
  if (bytes > release_.max_request || alignment > release_.max_request - bytes) return 0;
  return in_an_arena(p, bytes + alignment + kMinSize, [&](const Arena<P>& av) {
    return int_memalign(av, alignment, bytes);
  });
}

template <Platform P>
Addr Ptmalloc<P>::valloc(P& p, std::uint64_t bytes) {
  return memalign(p, page(p), bytes);
}

template <Platform P>
Addr Ptmalloc<P>::pvalloc(P& p, std::uint64_t bytes) {
  if (bytes > release_.max_request - page(p)) return 0;
  return memalign(p, page(p), align_up(bytes, page(p)));
}

template <Platform P>
Addr Ptmalloc<P>::int_memalign(const Arena<P>& av, std::uint64_t alignment,
                               std::uint64_t bytes) {
  const Chunks<P>& m = av.m;
  const Frame frame(m.p, places::kIntMemalign);
  const std::uint64_t nb = chunk_size_for(bytes);
  const Addr mem = int_malloc(av, nb + alignment + kMinSize);
  if (mem == 0) return 0;
  Addr c = to_chunk(mem);
  if (mem % alignment != 0) c = cut_lead(av, c, alignment);
  const std::uint64_t head = m.head(c);
  const std::uint64_t size = head & ~kSizeBits;
  if ((head & kIsMmapped) == 0 && size > nb + kMinSize) {
    m.set_head(c + nb, (size - nb) | kPrevInuse | av.mark());
    m.set_head_size(c, nb);
    free_cut(av, c + nb, release_.memalign_cuts_to_tcache);
  }
  return to_mem(c);
}

// The chunk at the aligned place inside `c`; what lies before it is freed.
template <Platform P>
Addr Ptmalloc<P>::cut_lead(const Arena<P>& av, Addr c, std::uint64_t alignment) {
  const Chunks<P>& m = av.m;
  Addr aligned = to_chunk(align_up(to_mem(c), alignment));
  if (aligned - c < kMinSize) aligned += alignment;
  const std::uint64_t lead = aligned - c;
  const std::uint64_t head = m.head(c);
  const std::uint64_t size = (head & ~kSizeBits) - lead;
  if ((head & kIsMmapped) != 0) {
    m.set_word(aligned, m.prev_size(c) + lead);
    m.set_head(aligned, size | kIsMmapped);
    return aligned;
  }
  m.set_head(aligned, size | kPrevInuse | av.mark());
  m.set_inuse(aligned, size);
  m.set_head_size(c, lead);
  free_cut(av, c, release_.memalign_cuts_to_tcache);
  return aligned;
}

}  // namespace faultline::alloc
