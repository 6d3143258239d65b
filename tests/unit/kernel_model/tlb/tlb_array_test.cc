// SPDX-License-Identifier: Apache-2.0
//
// One TLB array: sizes, sets, marks, and 200,000 random steps against a naive one.
#include <gtest/gtest.h>

#include <string>

#include "kernel_model/tlb/tlb_array.h"
#include "tests/support/random.h"
#include "tests/unit/kernel_model/tlb/naive_tlb.h"

namespace faultline::kernel::testing {
namespace {

constexpr VirtAddr page(std::uint64_t n) {
  return {n << 12};
}

// Which of the pages 0, 1, 2 … are held: "0.2.".
std::string held(TlbArray& array, std::uint64_t pages) {
  std::string out;
  for (std::uint64_t i = 0; i < pages; ++i)
    out += array.find(1, page(i)) != nullptr ? static_cast<char>('0' + i) : '.';
  return out;
}

TEST(TlbArray, AnEntryHasTheLargestSizeThatTheArrayHoldsAndTheTranslationFills) {
  const TlbArray array(32, 32, {12, 16, 20});
  EXPECT_EQ(array.fit(12), 12U);
  EXPECT_EQ(array.fit(14), 12U);
  EXPECT_EQ(array.fit(16), 16U);
  EXPECT_EQ(array.fit(21), 20U) << "2 MiB enter as pieces of 1 MiB";
  EXPECT_EQ(TlbArray(4, 4, {21}).fit(12), 0U);
}

TEST(TlbArray, TheFirstUnmarkedEntryIsTheVictim) {
  TlbArray array(4, 4, {12});
  for (std::uint64_t i = 0; i < 4; ++i) array.insert(1, page(i), 12);
  EXPECT_EQ(held(array, 5), "0123.");
  // The fourth insertion took the marks off the other three.
  EXPECT_FALSE(array.use(*array.find(1, page(0))));
  const auto done = array.insert(1, page(4), 12);
  EXPECT_EQ(done.evicted, 1U);
  EXPECT_FALSE(done.dropped_marks);
  EXPECT_EQ(held(array, 5), "0.234") << "0 was used since, 1 not";
  EXPECT_TRUE(array.use(*array.find(1, page(2)))) << "0, 3, 4 were marked: a new round";
  array.insert(1, page(1), 12);
  EXPECT_EQ(held(array, 5), ".1234");
}

TEST(TlbArray, AMarkedEntryMayBeUsedWithoutALook) {
  TlbArray array(4, 4, {12});
  for (std::uint64_t i = 0; i < 3; ++i) array.insert(1, page(i), 12);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(array.use(*array.find(1, page(1))));
  const auto done = array.insert(1, page(3), 12);
  EXPECT_TRUE(done.dropped_marks);
  EXPECT_EQ(done.evicted, 0U) << "there was an empty entry";
}

TEST(TlbArray, SetsAreChosenByTheBlocksNumberInItsOwnSize) {
  TlbArray array(8, 2, {12, 15});
  for (const std::uint64_t n : {0, 4, 8}) array.insert(1, page(n), 12);
  EXPECT_EQ(array.find(1, page(0)), nullptr) << "three pages of one set";
  EXPECT_NE(array.find(1, page(4)), nullptr);
  array.insert(1, page(8 * 5), 15);  // block 5: set 1
  EXPECT_NE(array.find(1, page(8 * 5 + 7)), nullptr);
  array.insert(1, page(1), 12);
  array.insert(1, page(5), 12);
  EXPECT_EQ(array.find(1, page(8 * 5)), nullptr) << "pages 1 and 5 are of set 1, too";
}

TEST(TlbArray, FlushesByOverlapAndByAddressSpace) {
  TlbArray array(8, 8, {12, 15});
  array.insert(1, page(0), 15);  // pages 0-7
  array.insert(1, page(8), 12);
  array.insert(1, page(9), 12);
  array.insert(2, page(8), 12);
  array.flush(1, {page(10), page(20)});
  EXPECT_NE(array.find(1, page(9)), nullptr);
  array.flush(1, {page(7), page(9)});
  EXPECT_EQ(array.find(1, page(0)), nullptr);
  EXPECT_EQ(array.find(1, page(8)), nullptr);
  EXPECT_NE(array.find(1, page(9)), nullptr);
  EXPECT_NE(array.find(2, page(8)), nullptr) << "another address space's";
  array.flush(1);
  EXPECT_EQ(array.find(1, page(9)), nullptr);
}

using faultline::testing::Random;

TEST(TlbArray, AgreesWithANaiveOneOverRandomSteps) {
  struct Shape {
    unsigned entries, ways;
  };
  for (const auto [entries, ways] : {Shape{1, 1}, {8, 1}, {16, 4}, {64, 64}, {64, 8}}) {
    TlbArray array(entries, ways, {12, 15});
    NaiveTlb naive(entries, ways);
    Random random{entries + 7 * ways};
    std::uint64_t hits = 0;
    for (int step = 0; step < 40'000; ++step) {
      // Pages 0-127 are small, 128-1023 lie in blocks of eight.
      const VirtAddr at =
          page(random.below(5) == 0 ? 128 + random.below(896) : random.below(128));
      const unsigned shift = at < page(128) ? 12 : 15;
      const auto block = NaiveTlb::block_of(at, std::uint64_t{1} << shift);
      if (random.below(50) == 0) {
        const Range range{at, at + (std::uint64_t{4096} << random.below(5))};
        array.flush(1, range);
        naive.flush(range);
        continue;
      }
      const TlbEntry* const entry = array.find(1, at);
      ASSERT_EQ(entry != nullptr, naive.holds(block)) << "step " << step;
      if (entry != nullptr) {
        ++hits;
        array.use(*entry);
        naive.use(block);
      } else {
        array.insert(1, at, shift);
        naive.insert(block);
      }
    }
    EXPECT_GT(hits, 0U);
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
