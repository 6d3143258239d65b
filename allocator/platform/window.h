// SPDX-License-Identifier: Apache-2.0
//
// Host memory that holds the bytes of a modelled process: modelled address va lies at
// base + (va mod span), one mask and no table.
//
// All of it is reserved at once and without commitment; memory costs the host something
// only once its bytes are really used.  Books are kept in pieces of 4 KiB, whatever the
// modelled page size: a modelled page of 64 KiB with one word in it costs one piece.  A
// piece that the process lost reads as zeros when it is used again; the host's memory
// behind such pieces is given back in bulk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "allocator/platform.h"

namespace faultline::alloc {

class Window {
 public:
  static constexpr unsigned kPieceShift = 12;
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << kPieceShift;

  // Where the window lies never matters to what it holds: the usual base is tried first,
  // then any place and smaller spans.
  Window();
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] std::byte* host(Addr va) const { return base_ + (va & mask_); }

  // The piece of `va` is about to be read or written through host().
  void back(Addr va);
  [[nodiscard]] bool backed(Addr va) const;
  // [start, end) is lost; multiples of the piece.
  void discard(Addr start, Addr end);
  // The bytes of `bytes` from `from` on are now at `to`; the ranges don't overlap.
  void move(Addr from, Addr to, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t backed_pieces() const { return backed_pieces_; }

 private:
  // Bits of 64 neighbouring pieces, by group number; groups without bits are left out.
  using Bits = std::map<std::uint64_t, std::uint64_t>;

  [[nodiscard]] std::uint64_t group_of(Addr va) const { return (va & mask_) / kGroup; }
  [[nodiscard]] static unsigned piece_in_group(Addr va) {
    return static_cast<unsigned>(va >> kPieceShift) & 63;
  }
  [[nodiscard]] std::byte* group_start(std::uint64_t group) const {
    return base_ + group * kGroup;
  }
  void clear_stale(std::uint64_t group, std::uint64_t bit);
  void release_stale();

  static constexpr std::uint64_t kGroup = kPiece * 64;

  std::byte* base_ = nullptr;
  std::uint64_t mask_ = 0;
  Bits backed_;  // hold bytes
  Bits stale_;   // hold bytes that were lost; zeroed before the next use
  std::uint64_t backed_pieces_ = 0, stale_pieces_ = 0;
};

}  // namespace faultline::alloc
