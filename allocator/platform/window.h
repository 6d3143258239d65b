// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a modelled process on the host.
//
// Books are kept in pieces of 4 KiB, whatever the modelled page size: a modelled page of 64
// KiB with one word in it costs one piece.  Pieces get their host memory, a slot, when
// their bytes are first used, and slots lie packed, so that a program that strews words
// over terabytes costs the host as much as one that has them side by side.  A piece that
// the process lost gives its slot back and reads as zeros when it is used again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/platform.h"
#include "allocator/platform/reserved.h"
#include "allocator/platform/sparse_bits.h"

namespace faultline::alloc {

class Window {
 public:
  static constexpr unsigned kPieceShift = 12;
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << kPieceShift;

  Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Where the byte at `va` is, which must be backed.  It stays there until it is lost or
  // moved.
  [[nodiscard]] std::byte* host(Addr va) {
    return slots_[slot_of(piece(va))].bytes + (va & (kPiece - 1));
  }
  // Gives the piece of `va` host memory if it has none, and answers where its first byte
  // is.
  std::byte* back(Addr va);
  [[nodiscard]] bool backed(Addr va) const { return contains(piece(va)); }
  // Holds what `other` holds; precondition: nothing before.
  void assign(const Window& other);
  // [start, end) is lost; multiples of the piece.
  void discard(Addr start, Addr end);
  // The bytes of `bytes` from `from` on are now at `to`; the ranges don't overlap.
  void move(Addr from, Addr to, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t backed_pieces() const {
    return used_slots_ - free_slots_.size();
  }

 private:
  // Addresses that differ by a multiple of the span are one.
  static constexpr unsigned kSpanBits = 45;
  static constexpr std::uint64_t kPieces = std::uint64_t{1} << (kSpanBits - kPieceShift);
  static constexpr std::uint64_t kGroupPieces = 512;
  static constexpr std::uint64_t kGroups = kPieces / kGroupPieces;

  using SlotId = std::uint32_t;
  struct Slot {
    std::byte bytes[kPiece];
  };
  // Neighbouring pieces of which one is backed.
  struct Group {
    std::array<std::uint64_t, kGroupPieces / 64> backed;
    std::array<SlotId, kGroupPieces> slot;
  };
  using GroupId = std::uint32_t;
  static constexpr GroupId kNone = 0;

  [[nodiscard]] static std::uint64_t piece(Addr va) {
    return va >> kPieceShift & (kPieces - 1);
  }
  [[nodiscard]] bool contains(std::uint64_t piece) const {
    const Group& group = groups_[group_of_[piece / kGroupPieces]];
    return (group.backed[piece % kGroupPieces / 64] >> piece % 64 & 1) != 0;
  }
  [[nodiscard]] SlotId slot_of(std::uint64_t piece) const {
    return groups_[group_of_[piece / kGroupPieces]].slot[piece % kGroupPieces];
  }
  [[nodiscard]] SlotId take_slot();
  [[nodiscard]] std::uint64_t next_backed(std::uint64_t first, std::uint64_t stop) const;
  void insert(std::uint64_t piece, SlotId slot);
  [[nodiscard]] SlotId erase(std::uint64_t piece);

  SparseBits groups_in_use_;
  Reserved<GroupId> group_of_;
  std::vector<Group> groups_;  // the first is kNone's: nothing backed
  std::vector<GroupId> free_groups_;
  Reserved<Slot> slots_;
  std::uint32_t used_slots_ = 0, populated_slots_ = 0;
  std::vector<SlotId> free_slots_;  // hold old bytes
};

}  // namespace faultline::alloc
