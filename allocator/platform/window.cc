// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/window.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace faultline::alloc {
namespace {

constexpr std::size_t kMostSlots = std::size_t{1} << 28, kLeastSlots = std::size_t{1} << 20;

}  // namespace

Window::Window()
    : backed_(kPieces), group_of_(kPieces / 64), slots_(kMostSlots, kLeastSlots) {}

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
  return used_slots_++;
}

void Window::insert(std::uint64_t piece, SlotId slot) {
  if (!backed_.any_around(piece)) {
    if (free_groups_.empty()) {
      free_groups_.push_back(static_cast<std::uint32_t>(groups_.size()));
      groups_.emplace_back();
    }
    group_of_[piece / 64] = free_groups_.back();
    free_groups_.pop_back();
  }
  backed_.insert(piece);
  slot_of(piece) = slot;
}

Window::SlotId Window::erase(std::uint64_t piece) {
  const SlotId slot = slot_of(piece);
  backed_.erase(piece);
  if (!backed_.any_around(piece)) free_groups_.push_back(group_of_[piece / 64]);
  return slot;
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
  for (std::uint64_t i = backed_.next(first, stop); i < stop; i = backed_.next(i + 1, stop))
    free_slots_.push_back(erase(i));
}

void Window::move(Addr from, Addr to, std::uint64_t bytes) {
  if (bytes == 0) return;
  discard(to, to + bytes);
  const std::uint64_t first = piece(from);
  const std::uint64_t stop = piece(from + bytes - 1) + 1;
  for (std::uint64_t i = backed_.next(first, stop); i < stop;
       i = backed_.next(i + 1, stop)) {
    const SlotId slot = erase(i);
    insert(piece(to + ((i - first) << kPieceShift)), slot);
  }
}

}  // namespace faultline::alloc
