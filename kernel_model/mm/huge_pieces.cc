// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/huge_pieces.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline::kernel {

void HugePieces::add_huge_page(Pfn head) {
  const std::size_t block = head.v >> order_;
  if (block >= blocks_.size()) blocks_.resize(block + 1, kNoHugePage);
  FAULTLINE_CHECK_EQ(blocks_[block], kNoHugePage);
  blocks_[block] = kWithoutBits;
}

void HugePieces::remove_huge_page(Pfn head) {
  if (has_bits(head)) drop_bits(head);
  blocks_[head.v >> order_] = kNoHugePage;
}

void HugePieces::map_all(Pfn head) {
  std::uint32_t& block = blocks_[head.v >> order_];
  FAULTLINE_CHECK_EQ(block, kWithoutBits);
  const std::size_t pieces = std::size_t{1} << order_;
  if (free_bits_.empty()) {
    free_bits_.push_back(static_cast<std::uint32_t>(bits_.size()));
    bits_.emplace_back((pieces + 63) / 64);
  }
  std::vector<std::uint64_t>& bits = bits_[free_bits_.back()];
  block = free_bits_.back() + kFirstBits;
  free_bits_.pop_back();
  std::ranges::fill(bits,
                    pieces < 64 ? (std::uint64_t{1} << pieces) - 1 : ~std::uint64_t{0});
}

void HugePieces::unmap(Pfn first, std::uint64_t pages) {
  std::vector<std::uint64_t>& bits = bits_[blocks_[first.v >> order_] - kFirstBits];
  std::uint64_t piece = first.v - head_of(first).v;
  for (std::uint64_t left = pages; left != 0;) {
    const std::uint64_t count = std::min(left, 64 - piece % 64);
    const std::uint64_t these = ~std::uint64_t{0} >> (64 - count) << piece % 64;
    std::uint64_t& word = bits[piece / 64];
    FAULTLINE_CHECK_EQ(word & these, these);
    word &= ~these;
    piece += count;
    left -= count;
  }
}

void HugePieces::drop_bits(Pfn head) {
  std::uint32_t& block = blocks_[head.v >> order_];
  free_bits_.push_back(block - kFirstBits);
  block = kWithoutBits;
}

}  // namespace faultline::kernel
