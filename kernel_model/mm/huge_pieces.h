// SPDX-License-Identifier: Apache-2.0
//
// Which frames belong to a huge page, and which pieces of a huge page are mapped by PTEs,
// as long as none is mapped twice.
//
// Most huge pages whose PMD was split belong to one process.  One bit a piece says all of
// them, where the struct pages of a 512 MiB page would be 128 KiB to write and to read.
// Once anything else has to be said of a piece, the struct pages say it (piece_of(),
// rmap.h).
//
// Stands for: nothing in the kernel; how the model keeps _mapcount of tail pages.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_model/types.h"

namespace faultline::kernel {

class HugePieces {
 public:
  explicit HugePieces(unsigned pmd_order) : order_(pmd_order) {}

  void add_huge_page(Pfn head);
  void remove_huge_page(Pfn head);
  // In a huge page, anywhere.
  [[nodiscard]] bool covers(Pfn pfn) const {
    const std::size_t block = pfn.v >> order_;
    return block < blocks_.size() && blocks_[block] != kNoHugePage;
  }
  // Its head; covers(pfn).
  [[nodiscard]] Pfn head_of(Pfn pfn) const { return {pfn.v >> order_ << order_}; }

  // The bits say which pieces are mapped.
  [[nodiscard]] bool has_bits(Pfn head) const {
    const std::size_t block = head.v >> order_;
    return block < blocks_.size() && blocks_[block] >= kFirstBits;
  }
  // All pieces of a huge page without bits are mapped.
  void map_all(Pfn head);
  // `pages` mapped pieces from `first` on are no longer mapped.  has_bits().
  void unmap(Pfn first, std::uint64_t pages);
  [[nodiscard]] bool mapped(Pfn pfn) const {
    const std::uint32_t piece = pfn.v - head_of(pfn).v;
    return (bits_[blocks_[pfn.v >> order_] - kFirstBits][piece / 64] >> piece % 64 & 1) !=
           0;
  }
  // The struct pages say it from now on.
  void drop_bits(Pfn head);

 private:
  static constexpr std::uint32_t kNoHugePage = 0, kWithoutBits = 1, kFirstBits = 2;

  unsigned order_;
  std::vector<std::uint32_t> blocks_;  // of each huge page's worth of frames
  std::vector<std::vector<std::uint64_t>> bits_;
  std::vector<std::uint32_t> free_bits_;
};

}  // namespace faultline::kernel
