// SPDX-License-Identifier: Apache-2.0
//
// One array of a TLB (or of its walk cache): sets of entries that each translate an aligned
// block of some size.
//
// The set of an address is that of its block's number, for each size that the array holds.
// An entry that is used is marked.  When the last unmarked entry of a set is used, the
// marks of the others are dropped.  The victim is the first empty entry of the set, or else
// the first one without a mark: a pseudo-LRU of one bit an entry, which real arrays of many
// ways use in place of an exact order.  Using a marked entry changes nothing, so that
// whoever knows that an entry is there and marked need not ask.
//
// Model: makers don't publish the replacement of their TLBs.  Blocks of two sizes that
// cover the same address may both be there; the first one found is used.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel_model/types.h"

namespace faultline::kernel {

using Asid = std::uint32_t;  // which address space; 0 is none

struct TlbEntry {
  std::uint64_t block = 0;  // address >> shift
  Asid asid = 0;            // 0: the entry is empty
  std::uint32_t shift = 0;  // log2 of the block's size
  [[nodiscard]] bool covers(Asid space, VirtAddr at) const {
    return block == at.v >> shift && asid == space;
  }
  [[nodiscard]] Range range() const { return {{block << shift}, {(block + 1) << shift}}; }
};

class TlbArray {
 public:
  static constexpr unsigned kMostWays = 64;
  // `shifts`: the sizes of blocks that it holds.
  TlbArray(unsigned entries, unsigned ways, std::vector<unsigned> shifts);

  // The size of entry that serves a translation of 1 << shift bytes: the same, or the next
  // smaller one that the array holds; 0 if there is none.
  [[nodiscard]] unsigned fit(unsigned shift) const;

  // Null: not there.  Looking is not using.
  [[nodiscard]] const TlbEntry* find(Asid asid, VirtAddr at) const;
  [[nodiscard]] const TlbEntry* find(Asid asid, VirtAddr at, unsigned shift) const;
  // True: that took the marks off the others of its set.
  bool use(const TlbEntry& entry);
  // Puts the block of that size around `at` in and uses it.  `evicted`: who lost an entry
  // for it; 0: nobody.
  struct Insertion {
    const TlbEntry* entry = nullptr;
    Asid evicted = 0;
    bool dropped_marks = false;
  };
  Insertion insert(Asid asid, VirtAddr at, unsigned shift);

  // Takes out what overlaps `range`, or all of that address space.
  void flush(Asid asid, Range range);
  void flush(Asid asid);

  [[nodiscard]] std::span<const TlbEntry> set_of(const TlbEntry& entry) const;
  [[nodiscard]] std::span<const TlbEntry> entries() const { return entries_; }

 private:
  // How many entries there are of the blocks whose numbers fall together: mostly none,
  // which saves the search.
  static constexpr std::size_t kCensus = 1024;
  [[nodiscard]] static std::size_t census_of(std::uint64_t block) {
    return (block ^ block >> 10) % kCensus;
  }
  [[nodiscard]] std::size_t set_number(std::uint64_t block) const { return block % sets_; }
  void clear(std::size_t index);

  unsigned ways_;
  std::uint64_t sets_;
  std::uint64_t all_ways_;                    // as many ones
  std::vector<unsigned> shifts_;              // largest first
  std::vector<TlbEntry> entries_;             // set by set
  std::vector<std::uint64_t> live_, marked_;  // of each set, one bit a way
  std::array<std::uint8_t, kCensus> census_{};
};

}  // namespace faultline::kernel
