// SPDX-License-Identifier: Apache-2.0
//
// A last-level data cache that its node's CPUs share: which frames it holds, which of them
// are dirty, and which one goes when another comes.
//
// A set has as many ways as the hardware's, and a frame's set follows from its address: the
// low bits of its number (its colour) and the slice.  Two, four or eight slices are chosen
// by Intel's parities of address bits (C. Maurice et al., "Reverse Engineering Intel
// Last-Level Cache Complex Addressing Using Performance Counters", RAID 2015), any other
// number by a hash of our own.  So memory in one piece spreads evenly, and pages from here
// and there let some sets run over before others are full.  Memory of the model is as after
// boot, in one piece; Shape::random makes its pages lie as those of a machine that has been
// used for long.  The replacement is that of Intel's inclusive caches from Nehalem to Sandy
// Bridge: each way has an access bit, the victim is the lowest numbered way whose bit is
// off, and when the last bit would go on, all others go off (Hennessy and Patterson,
// Computer Architecture, 5th edition, section 2.6, on the Core i7; "MRU" at uops.info).
//
// Model: an entry is a page, not a line.  In hardware the lines of a page take turns with
// the slices, in one order or the other; here all of a page's lines lie in one slice.  With
// parities that comes to the same: which pages contend for which lines is alike.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace faultline::kernel {

class LastLevelCache {
 public:
  static constexpr unsigned kMostWays = 64;
  // Preconditions: ways is in [1, kMostWays], sets and slices are positive, slices divides
  // sets.
  struct Shape {
    std::uint32_t sets = 1;
    unsigned ways = 16, slices = 1;
    unsigned page_shift = 12;
    bool random = false;  // sets are drawn for frames, whatever their addresses
  };
  // Of a machine with so many frames.
  LastLevelCache(std::uint64_t frames, const Shape& shape);

  [[nodiscard]] bool holds(std::uint32_t frame) const { return slot_of_[frame] != kNone; }
  [[nodiscard]] bool is_dirty(std::uint32_t frame) const;

  // An access to a frame; false: it isn't here, and nothing has changed.
  bool hit(std::uint32_t frame, bool dirties) {
    const std::uint32_t slot = slot_of_[frame];
    if (slot == kNone) return false;
    mark(sets_[slot / kMostWays], slot % kMostWays, dirties, all_ways_);
    return true;
  }

  // hit() of frame(0), frame(1) … up to the first of `count` that isn't here (kNoFrame
  // never is); answers how many were.
  static constexpr std::uint32_t kNoFrame = UINT32_MAX;
  template <typename Frame>
  std::uint64_t hits(std::uint64_t count, bool dirties, Frame frame) {
    // Of its own: what is stored in between can't change them.
    const std::uint32_t* const slots = slot_of_.data();
    Set* const sets = sets_.data();
    const std::uint64_t all_ways = all_ways_;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t f = frame(i);
      if (f == kNoFrame) return i;
      const std::uint32_t slot = slots[f];
      if (slot == kNone) return i;
      mark(sets[slot / kMostWays], slot % kMostWays, dirties, all_ways);
    }
    return count;
  }

  // What had to go.
  struct Victim {
    std::uint32_t frame = 0;
    bool dirty = false;
  };
  // Takes in a frame that isn't here; the victim is dirty only if there was one.
  Victim fill(std::uint32_t frame, bool dirties);

  // Written back, but kept.
  void clean(std::uint32_t frame);
  // Not here any more, written back or not.
  void drop(std::uint32_t frame);

  [[nodiscard]] std::uint64_t frames_held() const { return held_; }
  [[nodiscard]] std::uint64_t capacity() const {
    return std::uint64_t{shape_.sets} * shape_.ways;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct alignas(32) Set {
    std::uint64_t used = 0;   // ways that hold a frame
    std::uint64_t young = 0;  // access bits
    std::uint64_t dirty = 0;
  };

  // Without branches: which access of a set is the one that turns the others off can't be
  // foretold.
  static void mark(Set& set, unsigned way, bool dirties, std::uint64_t all_ways) {
    const std::uint64_t bit = std::uint64_t{1} << way;
    const std::uint64_t young = set.young | bit;
    const std::uint64_t keep = 0 - std::uint64_t{young != all_ways};
    set.young = (young & keep) | bit;
    set.dirty |= std::uint64_t{dirties} << way;
  }
  [[nodiscard]] std::uint32_t set_of(std::uint32_t frame) const;
  [[nodiscard]] std::uint32_t slice_of(std::uint32_t frame) const;

  Shape shape_;
  std::uint64_t all_ways_;
  std::uint64_t held_ = 0;
  std::vector<Set> sets_;
  std::vector<std::uint32_t> frame_of_;  // by slot: set x kMostWays + way
  std::vector<std::uint32_t> slot_of_;   // by frame
};

}  // namespace faultline::kernel
