// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of chunks and bins, and where the words of an arena and of a heap lie.
//
// A chunk at `c` has two header words: the size of the chunk before it at c (which belongs
// to that one while it is in use) and its own size with three flag bits at c + 8.  User
// memory starts at c + 16 and runs over the next chunk's first word.  Sizes are for 64-bit
// machines and don't depend on the page size.
//
// Stands for: malloc/malloc.c (glibc 2.23-2.44), the chunk macros and struct malloc_state;
// malloc/arena.c, struct _heap_info.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/platform.h"
#include "allocator/ptmalloc/release.h"

// Small steps of the fast paths: the compiler, which sees them called from several places,
// would leave them out of line, at a tenth of a malloc each.
#define FAULTLINE_INLINE inline __attribute__((always_inline))

namespace faultline::alloc {

inline constexpr std::uint64_t kWord = 8;
inline constexpr std::uint64_t kHeader = 16;  // from the chunk to the user's memory
inline constexpr std::uint64_t kMallocAlignment = 16;
inline constexpr std::uint64_t kMinSize = 32;  // MINSIZE

inline constexpr std::uint64_t kPrevInuse = 1, kIsMmapped = 2, kNonMainArena = 4,
                               kSizeBits = 7;

inline constexpr std::uint64_t kMinLargeSize =
    1024;                                 // chunks from here on are in large bins
inline constexpr unsigned kUnsorted = 1;  // index of the unsorted bin
inline constexpr unsigned kBins = 128;    // bin 0 doesn't exist
inline constexpr unsigned kFastbins = 10;
inline constexpr std::uint64_t kFastbinConsolidation = 65536;
inline constexpr std::uint64_t kHeapMax =
    std::uint64_t{64} << 20;  // HEAP_MAX_SIZE: 2 x the largest threshold
inline constexpr std::uint64_t kHeapMin = 32 << 10;
inline constexpr std::uint64_t kMmapThresholdMax = std::uint64_t{32} << 20;

constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) & ~(unit - 1);
}
constexpr std::uint64_t align_down(std::uint64_t n, std::uint64_t unit) {
  return n & ~(unit - 1);
}

// request2size: the chunk that holds `request` bytes.
constexpr std::uint64_t chunk_size_for(std::uint64_t request) {
  return std::max(kMinSize, align_up(request + kWord, kMallocAlignment));
}

constexpr bool is_small(std::uint64_t size) {
  return size < kMinLargeSize;
}

// bin_index: small bins hold one size each, large ones ever wider ranges.
constexpr unsigned bin_index(std::uint64_t size) {
  std::uint64_t index = 126;
  if (is_small(size))
    index = size >> 4;
  else if ((size >> 6) <= 48)
    index = 48 + (size >> 6);
  else if ((size >> 9) <= 20)
    index = 91 + (size >> 9);
  else if ((size >> 12) <= 10)
    index = 110 + (size >> 12);
  else if ((size >> 15) <= 4)
    index = 119 + (size >> 15);
  else if ((size >> 18) <= 2)
    index = 124 + (size >> 18);
  return static_cast<unsigned>(index);
}

constexpr unsigned fastbin_index(std::uint64_t size) {
  return static_cast<unsigned>(size >> 4) - 2;
}
constexpr unsigned tcache_index(std::uint64_t size) {
  return static_cast<unsigned>((size - kMinSize) / kMallocAlignment);
}

// Offsets in struct malloc_state.  The first word is the lock's.
struct ArenaLayout {
  explicit constexpr ArenaLayout(const ReleaseProfile& release) {
    // Before 2.27 the flag for fast chunks shared the word of the other flags.
    const bool own_flag = release.fastbins && release.malloc_state_bytes == 2200;
    have_fast = own_flag ? 8 : 6;
    fastbins = own_flag ? 16 : 8;
    top = fastbins + (release.fastbins ? kFastbins * kWord : 0);
    last_remainder = top + kWord;
    bins = last_remainder + kWord;
    binmap = bins + (kBins - 1) * 2 * kWord;
    next = binmap + kBins / 8;
    next_free = next + kWord;
    attached = next_free + kWord;
    system_mem = attached + kWord;
    max_system_mem = system_mem + kWord;
    bytes = max_system_mem + kWord;
  }
  std::uint64_t flags = 4, have_fast, fastbins, top, last_remainder, bins, binmap, next,
                next_free, attached, system_mem, max_system_mem, bytes;
};

// Offsets in struct _heap_info, which starts each heap of a thread arena.
namespace heap_info {
inline constexpr std::uint64_t kArena = 0, kPrev = 8, kSize = 16, kMprotectSize = 24,
                               kPagesize = 32;
}
constexpr Addr heap_of(Addr chunk, std::uint64_t heap_max = kHeapMax) {
  return align_down(chunk, heap_max);
}

// In the first word of a block with a mapping of its own: the mapping is of huge pages
// (2.43).
inline constexpr std::uint64_t kIsHugetlb = 1;

}  // namespace faultline::alloc
