// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a modelled process: what is lost reads as zeros, what moves keeps its bytes,
// and the set below finds the next member over any gap.
#include "allocator/platform/window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "allocator/platform/sparse_bits.h"

namespace faultline::alloc {
namespace {

constexpr Addr kTerabyte = Addr{1} << 40;
constexpr std::uint64_t kPiece = Window::kPiece;

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 33;
}

TEST(SparseBits, NextFindsMembersOverGapsOfEverySize) {
  SparseBits bits(std::uint64_t{1} << 33);
  std::set<std::uint64_t> members;
  std::uint64_t random = 7;
  for (unsigned i = 0; i < 4000; ++i) {
    const std::uint64_t n = next_random(random) << 2 >> (next_random(random) % 33);
    if (next_random(random) % 3 == 0 && !members.empty()) {
      bits.erase(*members.begin());
      members.erase(members.begin());
    }
    bits.insert(n);
    members.insert(n);
  }
  const std::uint64_t end = std::uint64_t{1} << 33;
  auto expected = members.begin();
  for (std::uint64_t i = bits.next(0, end); i < end; i = bits.next(i + 1, end)) {
    ASSERT_NE(expected, members.end());
    ASSERT_EQ(i, *expected++);
    ASSERT_TRUE(bits.contains(i));
  }
  EXPECT_EQ(expected, members.end());
}

TEST(SparseBits, NextStopsAtTheEndOfTheRange) {
  SparseBits bits(std::uint64_t{1} << 33);
  bits.insert(5'000'000);
  EXPECT_GE(bits.next(0, 4'999'999), 4'999'999U);
  EXPECT_EQ(bits.next(5'000'000, 5'000'001), 5'000'000U);
  bits.erase(5'000'000);
  EXPECT_GE(bits.next(0, 6'000'000), 6'000'000U);
}

TEST(Window, LostPiecesReadAsZeros) {
  Window window;
  std::memset(window.back(0x5000), 7, kPiece);
  std::memset(window.back(0x6000), 8, kPiece);
  window.discard(0x5000, 0x6000);
  EXPECT_FALSE(window.backed(0x5000));
  EXPECT_EQ(window.backed_pieces(), 1U);
  const std::byte* const again = window.back(0x5000);  // takes over the slot with the 7s
  for (std::uint64_t i = 0; i < kPiece; ++i) ASSERT_EQ(again[i], std::byte{0});
  EXPECT_EQ(*window.host(0x6fff), std::byte{8});
}

TEST(Window, HoldsAsManyPiecesAsAreInUseHoweverFarApart) {
  Window window;
  for (Addr at = 0; at < 20 * kTerabyte; at += kTerabyte / 64) window.back(at + 0x1000);
  EXPECT_EQ(window.backed_pieces(), 20U * 64);
  window.discard(kTerabyte, 20 * kTerabyte);
  EXPECT_EQ(window.backed_pieces(), 64U);
}

TEST(Window, DiscardsAcrossAMultipleOfItsSpan) {
  Window window;
  const Addr multiple = Addr{1} << 46;
  window.back(multiple - kPiece);
  window.back(multiple);
  window.back(multiple + kPiece);
  window.discard(multiple - kPiece, multiple + kPiece);
  EXPECT_EQ(window.backed_pieces(), 1U);
  EXPECT_TRUE(window.backed(multiple + kPiece));
}

TEST(Window, MovesBytesWithTheirPieces) {
  Window window;
  *window.back(0x10'0000) = std::byte{1};
  *window.back(0x10'3000) = std::byte{2};
  *window.back(3 * kTerabyte + 0x1000) = std::byte{9};  // lost to the move
  window.move(0x10'0000, 3 * kTerabyte, 0x4000);
  EXPECT_EQ(*window.host(3 * kTerabyte), std::byte{1});
  EXPECT_EQ(*window.host(3 * kTerabyte + 0x3000), std::byte{2});
  EXPECT_FALSE(window.backed(3 * kTerabyte + 0x1000));
  EXPECT_FALSE(window.backed(0x10'0000));
  EXPECT_EQ(window.backed_pieces(), 2U);
}

TEST(Window, RandomUseEqualsAMap) {
  Window window;
  std::map<Addr, std::uint8_t> model;  // first byte of each backed piece
  std::uint64_t random = 99;
  for (unsigned step = 0; step < 20'000; ++step) {
    const Addr at = (next_random(random) % 3000) << (12 + 6 * (next_random(random) % 3));
    const std::uint64_t length = (1 + next_random(random) % 200) * kPiece;
    switch (next_random(random) % 8) {
      case 0:
        window.discard(at, at + length);
        model.erase(model.lower_bound(at), model.lower_bound(at + length));
        break;
      case 1: {
        const Addr to = at + 2 * kTerabyte;
        window.move(at, to, length);
        model.erase(model.lower_bound(to), model.lower_bound(to + length));
        for (auto i = model.lower_bound(at); i != model.end() && i->first < at + length;) {
          model[to + (i->first - at)] = i->second;
          i = model.erase(i);
        }
        break;
      }
      default: {
        const auto byte = static_cast<std::uint8_t>(1 + step % 255);
        std::byte* const here = window.back(at);
        ASSERT_EQ(static_cast<std::uint8_t>(*here), model.contains(at) ? model[at] : 0);
        *here = std::byte{byte};
        model[at] = byte;
      }
    }
    ASSERT_EQ(window.backed_pieces(), model.size());
  }
}

}  // namespace
}  // namespace faultline::alloc
