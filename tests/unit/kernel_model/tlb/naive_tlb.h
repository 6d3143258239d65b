// SPDX-License-Identifier: Apache-2.0
//
// A TLB array as one would write it down without a thought for speed, to hold the real one
// against: every block is looked for in every slot.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernel_model/types.h"

namespace faultline::kernel::testing {

class NaiveTlb {
 public:
  NaiveTlb(unsigned entries, unsigned ways) : ways_(ways), sets_(entries / ways) {}

  // A block is its first address and its size.
  struct Block {
    std::uint64_t start = 0, size = 0;
    bool operator==(const Block&) const = default;
  };
  static Block block_of(VirtAddr at, std::uint64_t size) {
    return {at.v / size * size, size};
  }

  [[nodiscard]] bool holds(Block block) const { return position(block).has_value(); }
  void use(Block block) {
    auto& set = set_of(block);
    set[*position(block)].used = true;
    for (const Slot& slot : set)
      if (!slot.used) return;
    for (Slot& slot : set) slot.used = slot.block == block;
  }
  void insert(Block block) {
    auto& set = set_of(block);
    std::size_t victim = set.size();
    for (std::size_t i = set.size(); i-- > 0;)
      if (!set[i].used) victim = i;
    for (std::size_t i = set.size(); i-- > 0;)
      if (set[i].block.size == 0) victim = i;
    if (victim == set.size()) victim = 0;
    set[victim] = {block, false};
    use(block);
  }
  void flush(Range range) {
    for (auto& [number, set] : slots_)
      for (Slot& slot : set)
        if (slot.block.size != 0 && slot.block.start < range.end.v &&
            range.start.v < slot.block.start + slot.block.size)
          slot = {};
  }

 private:
  struct Slot {
    Block block;  // size 0: empty
    bool used = false;
  };
  std::vector<Slot>& set_of(Block block) const {
    auto& set = slots_[block.start / block.size % sets_];
    set.resize(ways_);
    return set;
  }
  [[nodiscard]] std::optional<std::size_t> position(Block block) const {
    const auto& set = set_of(block);
    for (std::size_t i = 0; i < set.size(); ++i)
      if (set[i].block == block) return i;
    return std::nullopt;
  }

  std::size_t ways_;
  std::uint64_t sets_;
  mutable std::map<std::uint64_t, std::vector<Slot>> slots_;
};

}  // namespace faultline::kernel::testing
