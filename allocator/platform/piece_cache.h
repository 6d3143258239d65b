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
  static constexpr std::uint64_t kNoPiece = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t readable = kNoPiece, writable = kNoPiece;  // a piece's number, or none
    std::byte* host = nullptr;                               // its first byte
    [[nodiscard]] std::byte* at(Addr va) const {
      return host + (va & (Window::kPiece - 1));
    }
  };

  [[nodiscard]] static std::uint64_t piece(Addr at) { return at >> Window::kPieceShift; }
  [[nodiscard]] Entry* entries() { return entries_.data(); }
  void fill(Addr at, bool writable, std::byte* host) {
    const std::uint64_t index = piece(at) % kEntries;
    if (entries_[index].readable == kNoPiece)
      filled_[count_++] = static_cast<std::uint16_t>(index);
    entries_[index] = {piece(at), writable ? piece(at) : kNoPiece, host};
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
