// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/tlb/tlb_array.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "sim/check.h"

namespace faultline::kernel {

TlbArray::TlbArray(unsigned entries, unsigned ways, std::vector<unsigned> shifts)
    : ways_(ways),
      sets_(entries / ways),
      all_ways_(~std::uint64_t{0} >> (kMostWays - ways)),
      shifts_(std::move(shifts)),
      entries_(entries),
      live_(sets_),
      marked_(sets_) {
  FAULTLINE_CHECK(ways > 0 && ways <= kMostWays && entries % ways == 0);
  std::ranges::sort(shifts_, std::greater<>());
}

unsigned TlbArray::fit(unsigned shift) const {
  for (const unsigned held : shifts_)
    if (held <= shift) return held;
  return 0;
}

std::span<const TlbEntry> TlbArray::set_of(const TlbEntry& entry) const {
  return {entries_.data() + set_number(entry.block) * ways_, ways_};
}

const TlbEntry* TlbArray::find(Asid asid, VirtAddr at) const {
  for (const unsigned shift : shifts_)
    if (const TlbEntry* const entry = find(asid, at, shift)) return entry;
  return nullptr;
}

const TlbEntry* TlbArray::find(Asid asid, VirtAddr at, unsigned shift) const {
  const std::uint64_t block = at.v >> shift;
  if (sets_ == 1 && census_[census_of(block)] == 0) return nullptr;
  const TlbEntry* const set = entries_.data() + set_number(block) * ways_;
  for (unsigned way = 0; way < ways_; ++way)
    if (set[way].block == block && set[way].asid == asid && set[way].shift == shift)
      return &set[way];
  return nullptr;
}

bool TlbArray::use(const TlbEntry& entry) {
  const auto index = static_cast<std::size_t>(&entry - entries_.data());
  const std::uint64_t bit = std::uint64_t{1} << index % ways_;
  std::uint64_t& marks = marked_[index / ways_];
  marks |= bit;
  if (marks != all_ways_ || ways_ == 1) return false;
  marks = bit;
  return true;
}

// The array's only other bookkeeping is the census, a byte a number: sets of one have at
// most 64 entries.
TlbArray::Insertion TlbArray::insert(Asid asid, VirtAddr at, unsigned shift) {
  const std::uint64_t block = at.v >> shift;
  const std::size_t set = set_number(block);
  const std::uint64_t candidates =
      live_[set] != all_ways_ ? ~live_[set] : ~marked_[set] & all_ways_;
  const auto way =
      candidates == 0 ? 0U : static_cast<unsigned>(std::countr_zero(candidates));
  const std::size_t index = set * ways_ + way;
  Insertion done{&entries_[index], entries_[index].asid, false};
  clear(index);
  entries_[index] = {block, asid, shift};
  live_[set] |= std::uint64_t{1} << way;
  if (sets_ == 1) ++census_[census_of(block)];
  done.dropped_marks = use(entries_[index]);
  return done;
}

void TlbArray::clear(std::size_t index) {
  TlbEntry& entry = entries_[index];
  if (entry.asid == 0) return;
  if (sets_ == 1) --census_[census_of(entry.block)];
  const std::uint64_t others = ~(std::uint64_t{1} << index % ways_);
  live_[index / ways_] &= others;
  marked_[index / ways_] &= others;
  entry = {};
}

void TlbArray::flush(Asid asid, Range range) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].asid != asid) continue;
    const Range held = entries_[i].range();
    if (range.start < held.end && held.start < range.end) clear(i);
  }
}

void TlbArray::flush(Asid asid) {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].asid == asid) clear(i);
}

}  // namespace faultline::kernel
