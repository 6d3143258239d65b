// SPDX-License-Identifier: Apache-2.0
//
// Which pieces of pages may be accessed without asking, and where their bytes are: what
// makes a load or store of the modelled world a few instructions.
//
// A direct-mapped table by the piece's number.  When the kernel takes any right away, all
// of it is forgotten; it remembers what is filled, so that this costs what filling it did.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/platform/window.h"
#include "kernel_model/kernel.h"

namespace faultline::alloc {

class PieceCache final : public kernel::AccessCache {
 public:
  static constexpr std::size_t kEntries = 4096;
  static constexpr Addr kNowhere = Addr{1} << 63;  // further from any address than a piece
  // The piece that begins there may be read, written; where its first byte is.
  struct alignas(32) Entry {
    Addr readable = kNowhere, writable = kNowhere;
    std::byte* host = nullptr;
  };

  [[nodiscard]] static std::size_t index(Addr at) {
    return (at >> Window::kPieceShift) % kEntries;
  }
  [[nodiscard]] Entry* entries() { return entries_.data(); }
  void fill(Addr at, bool writable, std::byte* host) {
    Entry& entry = entries_[index(at)];
    if (entry.readable == kNowhere)
      filled_[count_++] = static_cast<std::uint16_t>(index(at));
    const Addr piece = at & ~(Window::kPiece - 1);
    entry = {piece, writable ? piece : kNowhere, host};
  }
  void forget() override {
    for (; count_ > 0; --count_) entries_[filled_[count_ - 1]] = {};
  }

 private:
  std::array<Entry, kEntries> entries_{};
  std::array<std::uint16_t, kEntries> filled_{};  // their indexes, in the order of filling
  std::size_t count_ = 0;
};

}  // namespace faultline::alloc
