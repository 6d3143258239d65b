// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/tlb/tlb_array.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "sim/check.h"

namespace faultline::kernel {

TlbArray::TlbArray(unsigned entries, unsigned ways, std::vector<unsigned> shifts)
    : ways_(ways), sets_(entries / ways), shifts_(std::move(shifts)), entries_(entries) {
  FAULTLINE_CHECK(ways > 0 && entries % ways == 0);
  std::ranges::sort(shifts_, std::greater<>());
}

unsigned TlbArray::fit(unsigned shift) const {
  for (const unsigned held : shifts_)
    if (held <= shift) return held;
  return 0;
}

std::span<TlbEntry> TlbArray::set(std::uint64_t block) {
  return {entries_.data() + block % sets_ * ways_, ways_};
}

std::span<TlbEntry> TlbArray::set_of(const TlbEntry& entry) {
  return set(entry.block);
}

TlbEntry* TlbArray::find(Asid asid, VirtAddr at) {
  if (sets_ == 1) {
    for (TlbEntry& e : entries_)
      if (e.covers(asid, at)) return &e;
    return nullptr;
  }
  for (const unsigned shift : shifts_)
    if (TlbEntry* const entry = find(asid, at, shift)) return entry;
  return nullptr;
}

TlbEntry* TlbArray::find(Asid asid, VirtAddr at, unsigned shift) {
  for (TlbEntry& e : set(at.v >> shift))
    if (e.shift == shift && e.covers(asid, at)) return &e;
  return nullptr;
}

bool TlbArray::use(TlbEntry& entry) {
  if (entry.marked) return false;
  entry.marked = true;
  const auto others = set_of(entry);
  if (!std::ranges::all_of(others, &TlbEntry::marked)) return false;
  for (TlbEntry& e : others) e.marked = &e == &entry;
  return others.size() > 1;
}

TlbArray::Insertion TlbArray::insert(Asid asid, VirtAddr at, unsigned shift) {
  const auto candidates = set(at.v >> shift);
  auto victim =
      std::ranges::find_if(candidates, [](const TlbEntry& e) { return e.asid == 0; });
  if (victim == candidates.end())
    victim =
        std::ranges::find_if(candidates, [](const TlbEntry& e) { return !e.marked; });
  if (victim == candidates.end()) victim = candidates.begin();  // the only one of its set
  Insertion done{&*victim, victim->asid, false};
  *victim = {at.v >> shift, asid, static_cast<std::uint8_t>(shift), false};
  done.dropped_marks = use(*victim);
  return done;
}

bool TlbArray::flush(Asid asid, Range range) {
  bool any = false;
  for (TlbEntry& e : entries_) {
    if (e.asid != asid) continue;
    const Range held = e.range();
    if (held.end <= range.start || range.end <= held.start) continue;
    e = {};
    any = true;
  }
  return any;
}

bool TlbArray::flush(Asid asid) {
  bool any = false;
  for (TlbEntry& e : entries_) {
    if (e.asid != asid) continue;
    e = {};
    any = true;
  }
  return any;
}

}  // namespace faultline::kernel
