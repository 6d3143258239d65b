// SPDX-License-Identifier: Apache-2.0
//
// A release of glibc's malloc as data: every switch by which releases differ in the system
// calls they make and the words they touch.
//
// Sources: the release notes and the history of malloc/malloc.c, malloc/arena.c and
// sysdeps/unix/sysv/linux/malloc-hugepages.c; commits are named where one decides a switch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace faultline::alloc {

// What a cached chunk's second word holds against double frees: nothing (to 2.28), the
// address of the thread's cache (2.29), a random word of the process (2.34).
enum class TcacheKey : std::uint8_t { kNone, kOwner, kRandom };
// When a thread's cache is made: at its first call of malloc, calloc, realloc or free
// (to 2.42), or when there is something to put into it (2.43).
enum class TcacheCreation : std::uint8_t { kNever, kFirstCall, kFirstUse };
// realloc to a size that fits the chunk: split off what is over; keep it all if it fits
// (2.37), or if less than 16 bytes would be wasted (2.38, BZ 30579).
enum class ReallocFit : std::uint8_t { kSplit, kKeepIfFits, kKeepIfTight };
// 8 x CPUs, found out once more than arena_test arenas exist; or max(CPUs, arena_test),
// once there are arena_test (2.44).
enum class ArenaLimit : std::uint8_t { kEightPerCpu, kOnePerCpu };
// The mmap that stands in for a failed brk: at least 1 MiB; or (2.35-2.37, 6a734e62f1) the
// arguments swapped: the first is a multiple of 1 MiB, later ones are whole pages.
enum class MmapFallback : std::uint8_t { kAtLeastMiB, kSwapped };

// How huge pages are asked for: not at all; by the size of a THP, as the series of August
// 2021 first had it; by glibc.malloc.hugetlb (2.35).
enum class HugePageTunable : std::uint8_t { kNone, kThpPagesize, kHugetlb };
// Thread heaps under hugetlb=1: as ever; begun and grown in units of the THP size, and
// advised while smaller than one (2.43, 05a14648e9 and fa5d1b5419); advised whole at each
// growth (2.44).
enum class ThpHeaps : std::uint8_t { kNo, kAdvisedFirst, kAdvisedEach };

// How shrink_heap and malloc_trim give pages back: MADV_DONTNEED; vrange(VOLATILE, PARTIAL)
// without ever un-marking, the hack of April 2013; or the same, un-marked before use.
enum class GiveBack : std::uint8_t { kDontneed, kVrangeAsPosted, kVrange };

// Instructions of a path without the kernel's, so that private work takes time in the
// model. Sums of a malloc+free pair were counted with callgrind on x86-64 for 2.36, 2.41
// and 2.43.
struct PathCosts {
  std::uint32_t malloc_hit;    // malloc from the thread's cache, all of it
  std::uint32_t malloc_entry;  // malloc around the arena's work
  std::uint32_t arena_top;     // _int_malloc that cuts from top
  std::uint32_t arena_bins;    // _int_malloc through the bins
  std::uint32_t arena_quick;   // _int_malloc from a fastbin or an exact small bin
  std::uint32_t free_entry;    // free around the inner free
  std::uint32_t free_hit;      // inner free into the thread's cache
  std::uint32_t free_fast;     // inner free into a fastbin
  std::uint32_t free_arena;    // inner free that merges
  std::uint32_t unlink;        // one neighbour taken out of its bin
  std::uint32_t trim_attempt;  // a look at top that finds nothing to trim
  std::uint32_t lock_pair;     // taking and releasing a free arena lock
  std::uint32_t calloc_extra;  // calloc over malloc, without the clearing
};

struct ReleaseProfile {
  std::string_view name;  // "2.36"
  std::string_view title;

  TcacheCreation tcache = TcacheCreation::kFirstCall;
  TcacheKey tcache_key = TcacheKey::kRandom;
  unsigned tcache_bins = 64;        // small size classes: chunks of 32, 48 … bytes
  unsigned tcache_slots = 64;       // counters and list heads in the struct
  unsigned tcache_depth = 7;        // chunks kept of a class
  unsigned tcache_count_bytes = 2;  // width of a counter
  bool tcache_padded_twice =
      false;  // its own chunk: overhead and rounding are added twice (2.43)
  bool tcache_from_unsorted =
      true;  // exact fits found while sorting go into the cache first
  bool calloc_from_tcache = false;

  bool fastbins = true;
  bool frees_to_smallbin =
      false;  // small chunks are filed at once, not left unsorted (2.41)
  bool old_top_to_tcache =
      true;  // the rest of a full heap goes the way of any free (to 2.41)
  bool memalign_cuts_to_tcache = true;  // lead and tail of memalign likewise (to 2.38)
  bool realloc_cuts_to_tcache = true;   // what realloc cuts off likewise (to 2.41)

  std::uint64_t malloc_state_bytes = 2200;
  std::uint64_t heap_info_bytes = 48;
  GiveBack give_back = GiveBack::kDontneed;
  bool heap_trim_always = false;  // whatever trim_threshold says (to 2.21, BZ 17195)
  bool heaps_noreserve = false;   // MAP_NORESERVE on the reservation of a heap (to 2.36)
  ArenaLimit arena_limit = ArenaLimit::kEightPerCpu;
  MmapFallback mmap_fallback = MmapFallback::kAtLeastMiB;

  // Bytes over the chunk size that a mapping of its own must have, and how many of the
  // mapping's bytes its chunk size leaves out (2.43: the chunk looks like one of a heap).
  std::uint64_t mmap_overhead = 8;
  std::uint64_t mmap_hidden = 0;
  ReallocFit realloc_fit = ReallocFit::kSplit;

  HugePageTunable huge_page_tunable = HugePageTunable::kNone;
  bool thp_in_always = false;        // hugetlb=1 sizes growth under THP=always, too (2.43)
  bool thp_by_default = false;       // AArch64 (2.43): 2 MiB unless the tunable is set
  bool thp_default_advises = false;  // … and advised whatever the mode (2.44)
  std::uint64_t thp_limit = UINT64_MAX;  // larger THPs are left alone (2.44: 32 MiB)
  ThpHeaps thp_heaps = ThpHeaps::kNo;
  // The first growth takes the unknown break for 0, so that its end isn't aligned (to 2.42,
  // 94ebcfc4f2).
  bool first_break_unknown = true;
  bool advice_from_below = true;  // it begins at the page that holds the start, not behind
                                  // (to 2.42, 26e6e4d51e)
  bool mremap_advises = true;     // whatever the block's old size (to 2.42)
  // hugetlb >= 2: heaps are 4 pages large, at least 1 (to 2.41); the mmap threshold is the
  // page's size (2.39, bc6d79f4ae); a block remembers its page's size, so that mremap and
  // munmap are right (2.43, 921e251e8f).
  bool hugetlb_sizes_heaps = true;
  bool hugetlb_sets_threshold = false;
  bool hugetlb_marks_blocks = false;

  bool has_tunables = true;      // GLIBC_TUNABLES is read (2.26)
  bool strict_tunables = false;  // and must be well-formed (2.39)

  bool init_at_start = false;             // before main, not in the first call (2.42)
  bool single_thread_path = true;         // no locks before there is a second thread (2.27)
  std::uint64_t max_request = INT64_MAX;  // larger ones fail without a look

  PathCosts costs;

  [[nodiscard]] std::uint64_t tcache_entries_offset() const {
    return std::uint64_t{tcache_slots} * tcache_count_bytes;
  }
  [[nodiscard]] std::uint64_t tcache_bytes() const {
    return tcache_entries_offset() + std::uint64_t{tcache_slots} * 8;
  }
  // What is asked for to hold it.
  [[nodiscard]] std::uint64_t tcache_request() const {
    return tcache_padded_twice ? (tcache_bytes() + 8 + 15) / 16 * 16 : tcache_bytes();
  }
};

// All releases, oldest first.
[[nodiscard]] std::span<const ReleaseProfile> releases();
// null if there is none of that name.
[[nodiscard]] const ReleaseProfile* find_release(std::string_view name);

}  // namespace faultline::alloc
