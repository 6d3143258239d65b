// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/last_level_cache.h"

#include <array>

#include "sim/check.h"

namespace faultline::kernel {

LastLevelCache::LastLevelCache(std::uint64_t frames, const Shape& shape)
    : shape_(shape),
      all_ways_(shape.ways == kMostWays ? ~std::uint64_t{0}
                                        : (std::uint64_t{1} << shape.ways) - 1),
      sets_(shape.sets),
      frame_of_(std::size_t{shape.sets} * kMostWays),
      slot_of_(frames, kNone) {
  FAULTLINE_CHECK(shape.ways > 0 && shape.ways <= kMostWays);
  FAULTLINE_CHECK(shape.slices > 0 && shape.sets > 0 && shape.sets % shape.slices == 0);
}

namespace {

// Every bit of the frame's number has a part in the upper half.
std::uint64_t mixed(std::uint32_t frame) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio
  std::uint64_t mixed = (std::uint64_t{frame} + 1) * kGolden;
  mixed = (mixed ^ (mixed >> 29)) * kGolden;
  return mixed >> 32;
}

}  // namespace

std::uint32_t LastLevelCache::set_of(std::uint32_t frame) const {
  if (shape_.random) return static_cast<std::uint32_t>(mixed(frame) % shape_.sets);
  const std::uint32_t colours = shape_.sets / shape_.slices;
  return frame % colours * shape_.slices + slice_of(frame);
}

std::uint32_t LastLevelCache::slice_of(std::uint32_t frame) const {
  // Of the address bits whose parity each bit of the slice's number is.
  constexpr std::array<std::uint64_t, 3> kParities = {0x1b5f575440, 0x2eb5faa880,
                                                      0x3cccc93100};
  if (std::has_single_bit(shape_.slices) && shape_.slices <= 1U << kParities.size()) {
    const std::uint64_t address = std::uint64_t{frame} << shape_.page_shift;
    std::uint32_t slice = 0;
    for (unsigned i = 0; 1U << i < shape_.slices; ++i)
      slice |= static_cast<std::uint32_t>(std::popcount(address & kParities[i]) & 1) << i;
    return slice;
  }
  return static_cast<std::uint32_t>(mixed(frame) % shape_.slices);
}

bool LastLevelCache::is_dirty(std::uint32_t frame) const {
  const std::uint32_t slot = slot_of_[frame];
  return slot != kNone && (sets_[slot / kMostWays].dirty >> slot % kMostWays & 1) != 0;
}

LastLevelCache::Victim LastLevelCache::fill(std::uint32_t frame, bool dirties) {
  const std::uint32_t index = set_of(frame);
  Set& set = sets_[index];
  const std::uint64_t empty = ~set.used & all_ways_;
  // A set of one way has no access bit that is off.
  const std::uint64_t old = ~set.young & all_ways_;
  const std::uint64_t from = empty != 0 ? empty : old != 0 ? old : all_ways_;
  const auto way = static_cast<unsigned>(std::countr_zero(from));
  const std::uint64_t bit = std::uint64_t{1} << way;
  const std::uint32_t slot = index * kMostWays + way;
  Victim victim;
  if (empty == 0) {
    victim = {frame_of_[slot], (set.dirty & bit) != 0};
    slot_of_[victim.frame] = kNone;
  } else {
    ++held_;
  }
  set.used |= bit;
  set.dirty &= ~bit;
  frame_of_[slot] = frame;
  slot_of_[frame] = slot;
  mark(set, way, dirties, all_ways_);
  return victim;
}

void LastLevelCache::clean(std::uint32_t frame) {
  const std::uint32_t slot = slot_of_[frame];
  if (slot != kNone)
    sets_[slot / kMostWays].dirty &= ~(std::uint64_t{1} << slot % kMostWays);
}

void LastLevelCache::drop(std::uint32_t frame) {
  const std::uint32_t slot = slot_of_[frame];
  if (slot == kNone) return;
  Set& set = sets_[slot / kMostWays];
  const std::uint64_t keep = ~(std::uint64_t{1} << slot % kMostWays);
  set.used &= keep;
  set.young &= keep;
  set.dirty &= keep;
  slot_of_[frame] = kNone;
  --held_;
}

}  // namespace faultline::kernel
