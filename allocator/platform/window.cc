// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/window.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace faultline::alloc {
namespace {

constexpr std::size_t kMostSlots = std::size_t{1} << 28, kLeastSlots = std::size_t{1} << 20;

}  // namespace

Window::Window()
    : groups_in_use_(kGroups),
      group_of_(kGroups),
      groups_(1),
      slots_(kMostSlots, kLeastSlots) {}

// Its bytes are zero.  The slot given back last is the likeliest to be in the host's
// caches.
Window::SlotId Window::take_slot() {
  if (!free_slots_.empty()) {
    const SlotId slot = free_slots_.back();
    free_slots_.pop_back();
    std::memset(slots_[slot].bytes, 0, kPiece);
    return slot;
  }
  if (used_slots_ == slots_.size()) {
    std::fputs("no host memory left for the bytes of a modelled process\n", stderr);
    std::abort();
  }
  if (used_slots_ == populated_slots_) {
    // The more there are, the more are likely to follow.
    constexpr std::uint32_t kMost = 256, kShare = 8;
    const std::uint32_t more = std::clamp(used_slots_ / kShare, 1U, kMost);
    if (more > 1) slots_.populate(used_slots_, more);
    populated_slots_ += more;
  }
  return used_slots_++;
}

void Window::insert(std::uint64_t piece, SlotId slot) {
  const std::uint64_t number = piece / kGroupPieces;
  if (group_of_[number] == kNone) {
    if (free_groups_.empty()) {
      free_groups_.push_back(static_cast<GroupId>(groups_.size()));
      groups_.emplace_back();
    }
    group_of_[number] = free_groups_.back();
    free_groups_.pop_back();
    groups_in_use_.insert(number);
  }
  Group& group = groups_[group_of_[number]];
  group.backed[piece % kGroupPieces / 64] |= std::uint64_t{1} << piece % 64;
  group.slot[piece % kGroupPieces] = slot;
}

// An empty group is as good as new: its slots say nothing without its bits.
Window::SlotId Window::erase(std::uint64_t piece) {
  const std::uint64_t number = piece / kGroupPieces;
  Group& group = groups_[group_of_[number]];
  group.backed[piece % kGroupPieces / 64] &= ~(std::uint64_t{1} << piece % 64);
  const SlotId slot = group.slot[piece % kGroupPieces];
  if (std::ranges::all_of(group.backed, [](std::uint64_t word) { return word == 0; })) {
    free_groups_.push_back(std::exchange(group_of_[number], kNone));
    groups_in_use_.erase(number);
  }
  return slot;
}

// The first backed piece of [first, stop); `stop` or more without one.
std::uint64_t Window::next_backed(std::uint64_t first, std::uint64_t stop) const {
  while (first < stop) {
    const Group& group = groups_[group_of_[first / kGroupPieces]];
    for (std::uint64_t word = first % kGroupPieces / 64; word < group.backed.size();
         ++word, first = (first / 64 + 1) * 64)
      if (const std::uint64_t left = group.backed[word] >> first % 64; left != 0)
        return first + static_cast<unsigned>(std::countr_zero(left));
    first = groups_in_use_.next(first / kGroupPieces,
                                (stop + kGroupPieces - 1) / kGroupPieces) *
            kGroupPieces;
  }
  return first;
}

std::byte* Window::back(Addr va) {
  if (!backed(va)) insert(piece(va), take_slot());
  return slots_[slot_of(piece(va))].bytes;
}

void Window::discard(Addr start, Addr end) {
  if (backed_pieces() == 0 || start >= end) return;
  const std::uint64_t first = piece(start);
  const std::uint64_t stop = piece(end - 1) + 1;
  if (stop <= first) {  // across a multiple of the span
    const Addr middle = (end - 1) & ~(kPieces * kPiece - 1);
    discard(start, middle);
    discard(middle, end);
    return;
  }
  for (std::uint64_t i = next_backed(first, stop); i < stop; i = next_backed(i + 1, stop))
    free_slots_.push_back(erase(i));
}

void Window::assign(const Window& other) {
  for (std::uint64_t i = other.next_backed(0, kPieces); i < kPieces;
       i = other.next_backed(i + 1, kPieces)) {
    const SlotId slot = take_slot();
    slots_[slot] = other.slots_[other.slot_of(i)];
    insert(i, slot);
  }
}

void Window::move(Addr from, Addr to, std::uint64_t bytes) {
  if (bytes == 0) return;
  discard(to, to + bytes);
  const std::uint64_t first = piece(from);
  const std::uint64_t stop = piece(from + bytes - 1) + 1;
  for (std::uint64_t i = next_backed(first, stop); i < stop; i = next_backed(i + 1, stop)) {
    const SlotId slot = erase(i);
    insert(piece(to + ((i - first) << kPieceShift)), slot);
  }
}

}  // namespace faultline::alloc
