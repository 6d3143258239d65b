// SPDX-License-Identifier: Apache-2.0
//
// Where things lie in a chunk and in an arena.
//
// A chunk (4 MiB, aligned to its size) begins with a header and a map with an entry for
// each page behind it.  An entry has two words that link it into a tree of free runs, and
// one that says what its page is part of: a block of whole pages, a run of small regions,
// or a free run.  Of a free run and of a large block only the first and the last page's
// entries are kept up to date.
//
//   bits:  size of the block or free run, or distance in bytes to the start of the small
//   run
//          | size class << 5 | state << 3 | unzeroed << 2 | large << 1 | allocated
//
// Stands for: arena_chunk_t, arena_chunk_map_t, arena_t (include/jemalloc/internal/arena.h,
// 3.3.1); the bit for volatile runs is that of the vrange port.
#pragma once

#include <cstdint>

#include "allocator/jemalloc/size_classes.h"
#include "allocator/platform.h"

namespace faultline::alloc::je {

inline constexpr std::uint64_t kWord = 8;

// What is known of a free run's pages.  Runs of different states don't coalesce.
enum class RunState : std::uint8_t {
  kClean,     // never used, or given back for good
  kDirty,     // used
  kMuzzy,     // given back by MADV_FREE under the decay rule: the kernel may have taken it
  kVolatile,  // given back by vrange: must not be touched before it is asked for again
};
inline constexpr unsigned kRunStates = 4;

namespace chunk {
inline constexpr std::uint64_t kArena = 0, kPagesIn = 8 /* one word each state */,
                               kRunsAvail = 40, kRunsAdjacent = 48, kDirtyLink = 56,
                               kMap = 96, kEntry = 24, kEntryLink = 0, kEntryBits = 16;
}  // namespace chunk

// The word of a map entry.
struct MapBits {
  std::uint64_t raw = 0;

  static constexpr std::uint64_t kAllocated = 1, kLarge = 2, kUnzeroed = 4;
  static constexpr unsigned kState = 3, kBin = 5;
  static constexpr std::uint64_t kStateMask = 3 << kState, kBinMask = 0x7f << kBin,
                                 kFlags = 0xfff;

  [[nodiscard]] bool allocated() const { return (raw & kAllocated) != 0; }
  [[nodiscard]] bool large() const { return (raw & kLarge) != 0; }
  [[nodiscard]] bool unzeroed() const { return (raw & kUnzeroed) != 0; }
  [[nodiscard]] RunState state() const {
    return static_cast<RunState>((raw & kStateMask) >> kState);
  }
  [[nodiscard]] unsigned bin() const {
    return static_cast<unsigned>((raw & kBinMask) >> kBin);
  }
  // Bytes: of the free run or large block; to the start of the small run.
  [[nodiscard]] std::uint64_t size() const { return raw & ~kFlags; }

  [[nodiscard]] static MapBits free_run(std::uint64_t size, RunState state,
                                        std::uint64_t unzeroed) {
    return {size | static_cast<std::uint64_t>(state) << kState | unzeroed};
  }
  [[nodiscard]] static MapBits large_block(std::uint64_t size, RunState state,
                                           std::uint64_t unzeroed) {
    return {free_run(size, state, unzeroed).raw | kLarge | kAllocated};
  }
  [[nodiscard]] static MapBits small_run(std::uint64_t distance, unsigned bin,
                                         RunState state, std::uint64_t unzeroed) {
    return {free_run(distance, state, unzeroed).raw | std::uint64_t{bin} << kBin |
            kAllocated};
  }
};

// One arena: in memory of its own, found by its address.
namespace arena {
inline constexpr std::uint64_t kLock = 0, kThreads = 8, kSpare = 16, kActive = 24,
                               kPages = 32 /* free pages, one word each state */,
                               kPurging = 64, kRunsAvail = 72, kChunksDirty = 80,
                               kTicks = 88, kDecay = 96 /* DecayState of dirty and muzzy */,
                               kBins = 96 + 2 * 1664;
}  // namespace arena

// The time-based rule's memory of one state.
namespace decay {
inline constexpr std::uint64_t kSteps = 200;
inline constexpr std::uint64_t kEpoch = 0, kPagesSeen = 8, kLimit = 16, kBacklog = 24,
                               kBytes = 1664;
static_assert(kBacklog + kSteps * kWord <= kBytes);
}  // namespace decay

// One bin of an arena, on a cache line of its own.
namespace bin {
inline constexpr std::uint64_t kLock = 0, kRunCurrent = 8, kRuns = 16, kBytes = 64;
}  // namespace bin

// The head of a run of small regions.
namespace run {
inline constexpr std::uint64_t kBin = 0, kNextIndex = 8, kFree = 12, kBitmap = 16;
}  // namespace run

// Numbers that follow from page size and settings.
struct Geometry {
  std::uint64_t page = 4096;
  unsigned page_shift = 12;
  std::uint64_t chunk = 0, chunk_pages = 0;
  std::uint64_t first_page = 0;  // map_bias: the header's pages
  std::uint64_t max_run = 0;     // arena_maxclass: bytes behind the header

  Geometry(std::uint64_t page_size, unsigned lg_chunk) : page(page_size) {
    while ((std::uint64_t{1} << page_shift) < page) ++page_shift;
    // A header of pages of 64 KiB leaves little of a small chunk.
    chunk = std::uint64_t{1} << lg_chunk;
    if (chunk < 16 * page) chunk = 16 * page;
    chunk_pages = chunk >> page_shift;
    std::uint64_t before = ~std::uint64_t{0};
    while (first_page != before) {
      before = first_page;
      const std::uint64_t bytes = chunk::kMap + chunk::kEntry * (chunk_pages - first_page);
      first_page = (bytes + page - 1) >> page_shift;
    }
    max_run = chunk - (first_page << page_shift);
  }
  [[nodiscard]] Addr chunk_of(Addr at) const { return at & ~(chunk - 1); }
  [[nodiscard]] std::uint64_t page_in_chunk(Addr at) const {
    return (at & (chunk - 1)) >> page_shift;
  }
  [[nodiscard]] std::uint64_t round_to_page(std::uint64_t n) const {
    return (n + page - 1) & ~(page - 1);
  }
  [[nodiscard]] std::uint64_t round_to_chunk(std::uint64_t n) const {
    return (n + chunk - 1) & ~(chunk - 1);
  }
  [[nodiscard]] Addr entry(Addr chunk_at, std::uint64_t page_index) const {
    return chunk_at + chunk::kMap + chunk::kEntry * (page_index - first_page);
  }
  // The page that a map entry stands for.
  [[nodiscard]] Addr page_of_entry(Addr entry_at) const {
    const Addr base = chunk_of(entry_at);
    const std::uint64_t index = (entry_at - base - chunk::kMap) / chunk::kEntry;
    return base + ((index + first_page) << page_shift);
  }
};

}  // namespace faultline::alloc::je
