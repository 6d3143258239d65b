// SPDX-License-Identifier: Apache-2.0
//
// What the user may set (tunables, MALLOC_* variables, mallopt), and the words that change
// while the program runs and that threads share without the arena's lock.
//
// Stands for: struct malloc_par and the static variables of malloc/arena.c
// (glibc 2.23-2.44).
#pragma once

#include <cstdint>
#include <optional>

namespace faultline::alloc {

struct Settings {
  std::uint64_t mmap_threshold = 128 << 10;  // start value; the dynamic rule raises it
  std::uint64_t trim_threshold = 128 << 10;
  std::uint64_t top_pad = 128 << 10;
  std::uint64_t mmap_max = 65536;  // n_mmaps_max
  bool dynamic_threshold = true;   // off once a threshold, top_pad or mmap_max is set
  std::uint64_t arena_max = 0;     // 0: by the release's rule
  std::uint64_t arena_test = 8;
  std::uint64_t mxfast = 128;
  int tcache_count = -1;            // -1: the release's depth
  std::uint64_t tcache_max = 1032;  // largest user size kept
  unsigned perturb = 0;             // fill byte; 0: no filling
  // 0: no huge pages; 1: THP by advice; 2: MAP_HUGETLB of the default size; or its size.
  std::optional<std::uint64_t> hugetlb;  // not set: the release's default
  std::uint64_t thp_pagesize = 0;  // the RFC's: 0: no; 1: the machine's size; or a size
};

// mallopt's parameters with their values in malloc.h.
enum class Param : int {
  kMxfast = 1,
  kTrimThreshold = -1,
  kTopPad = -2,
  kMmapThreshold = -3,
  kMmapMax = -4,
  kCheckAction = -5,
  kPerturb = -6,
  kArenaTest = -7,
  kArenaMax = -8,
};

// Shared words, by index.
enum class Shared : unsigned {
  kMmapThreshold,
  kTrimThreshold,
  kMmaps,            // n_mmaps: mapped blocks that are live
  kMmappedMem,       // their bytes
  kArenas,           // narenas, the main one included
  kArenaLimit,       // 0: not computed yet
  kFreeList,         // arenas that no thread is attached to, last in first out
  kNextToUse,        // where the search for an arena to share starts; 0: the main one
  kAlignedHeapArea,  // where the next heap may lie without trimming; 0: unknown
  kSbrkBase,         // first address that sbrk gave
  kCount,
};

}  // namespace faultline::alloc
