// SPDX-License-Identifier: Apache-2.0
//
// The free lists of one zone.  Drawings: one character a frame, '#' in use, '0'-'9' the
// order of the free block the frame lies in.
#include "kernel_model/phys/buddy.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace faultline::kernel {
namespace {

constexpr auto kMov = MigrateType::kMovable;
constexpr auto kUnm = MigrateType::kUnmovable;

// A zone of `frames` frames with blocks of up to 16 and pageblocks of 8.
struct Zone {
  explicit Zone(std::uint32_t frames, std::uint32_t used = 0)
      : table(frames), buddy(table, {0}, {frames}, 4, 3, true) {
    buddy.free_from({used});
  }
  [[nodiscard]] std::string draw() const {
    std::string s(table.size(), '#');
    for (std::uint32_t p = 0; p < table.size(); ++p)
      if (table[{p}].flags & Page::kBuddy)
        s.replace(p, std::size_t{1} << table[{p}].order, std::size_t{1} << table[{p}].order,
                  static_cast<char>('0' + table[{p}].order));
    return s;
  }
  FrameTable table;
  Buddy buddy;
};

TEST(Buddy, SplitsALargeBlockIntoHalves) {
  Zone z(16);
  const auto pfn = z.buddy.alloc(0, kMov);
  ASSERT_TRUE(pfn);
  EXPECT_EQ(pfn->v, 0U);
  EXPECT_EQ(z.draw(), "#011222233333333");
  EXPECT_EQ(z.buddy.nr_free(), 15U);
  z.buddy.check();
}

TEST(Buddy, MergesBackToTheLargestBlock) {
  Zone z(16);
  const auto a = z.buddy.alloc(0, kMov);
  const auto b = z.buddy.alloc(0, kMov);
  EXPECT_EQ(z.draw(), "##11222233333333");
  z.buddy.free(*a, 0);
  EXPECT_EQ(z.draw(), "0#11222233333333");
  z.buddy.free(*b, 0);
  EXPECT_EQ(z.draw(), "4444444444444444");
  z.buddy.check();
}

TEST(Buddy, UsedFramesAtTheStartLeaveSmallerBlocks) {
  Zone z(32, 5);
  EXPECT_EQ(z.draw(),
            "#####01133333333################");  // the second block is fresh: on no list
  EXPECT_EQ(z.buddy.nr_free(), 27U);
  EXPECT_EQ(z.buddy.nr_free_blocks(4), 1U);
  z.buddy.check();
}

TEST(Buddy, FragmentationIsAnInput) {
  FrameTable table(16 * 6 + 5);
  Buddy buddy(table, {0}, {16 * 6 + 5}, 4, 3, true);
  const std::vector<std::uint64_t> blocks = {7, 3, 4, 1, 2};
  ASSERT_TRUE(buddy.free_blocks(blocks));
  for (unsigned order = 0; order < 5; ++order)
    EXPECT_EQ(buddy.nr_free_blocks(order), blocks[order]) << order;
  EXPECT_EQ(buddy.nr_free(), 7 + 3 * 2 + 4 * 4 + 8 + 2 * 16U);
  buddy.check();
  for (int i = 0; i < 69; ++i) ASSERT_TRUE(buddy.alloc(0, kMov)) << i;
  EXPECT_FALSE(buddy.alloc(0, kMov));
}

TEST(Buddy, BlocksThatWouldMergeAreRefused) {
  FrameTable table(32);
  EXPECT_FALSE(Buddy(table, {0}, {32}, 4, 3, true).free_blocks({0, 0, 0, 4}));
  FrameTable other(32);
  EXPECT_TRUE(Buddy(other, {0}, {32}, 4, 3, true).free_blocks({2, 2, 2, 2}));
}

TEST(Buddy, RefusesWhatNoBlockHolds) {
  Zone z(16, 1);
  EXPECT_FALSE(z.buddy.has_block(4));
  EXPECT_FALSE(z.buddy.alloc(4, kMov));
  EXPECT_TRUE(z.buddy.has_block(3));
  EXPECT_FALSE(z.buddy.alloc(5, kMov));
}

TEST(Buddy, UnmovablePagesGatherInTheirPageblocks) {
  Zone z(32);
  const auto table1 = z.buddy.alloc(0, kUnm);
  std::set<std::uint32_t> user;
  for (int i = 0; i < 8; ++i) user.insert(z.buddy.alloc(0, kMov)->v);
  const auto table2 = z.buddy.alloc(0, kUnm);
  EXPECT_EQ(table1->v >> 3, table2->v >> 3);
  for (const auto pfn : user) EXPECT_NE(pfn >> 3, table1->v >> 3);
  EXPECT_EQ(z.buddy.type_of(*table1), kUnm);
  z.buddy.check();
}

TEST(Buddy, TakesFromTheOtherTypeRatherThanFail) {
  Zone z(16);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(z.buddy.alloc(0, kUnm));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(z.buddy.alloc(0, kMov));
  EXPECT_FALSE(z.buddy.alloc(0, kMov));
  EXPECT_FALSE(z.buddy.alloc(0, kUnm));
  EXPECT_EQ(z.buddy.nr_free(), 0U);
}

// A naive allocator with the same rules for what is possible: a set of free frames.
TEST(Buddy, RandomUseAgreesWithASetOfFrames) {
  constexpr std::uint32_t kFrames = 16 * 24 + 7;
  FrameTable table(kFrames);
  Buddy buddy(table, {0}, {kFrames}, 4, 3, true);
  buddy.free_from({9});
  std::set<std::uint32_t> free;
  for (std::uint32_t p = 9; p < kFrames; ++p) free.insert(p);
  std::vector<std::pair<Pfn, unsigned>> held;
  const auto possible = [&](unsigned order) {
    const std::uint32_t size = 1U << order;
    for (std::uint32_t p = 0; p + size <= kFrames; p += size) {
      std::uint32_t n = 0;
      while (n < size && free.contains(p + n)) ++n;
      if (n == size) return true;
    }
    return false;
  };
  std::mt19937 random(7);
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 5 < 3) {
      const unsigned order = static_cast<unsigned>(random() % 5);
      const auto pfn = buddy.alloc(order, random() % 3 == 0 ? kUnm : kMov);
      ASSERT_EQ(pfn.has_value(), possible(order)) << "step " << step << " order " << order;
      if (!pfn) continue;
      for (std::uint32_t i = 0; i < 1U << order; ++i) ASSERT_EQ(free.erase(pfn->v + i), 1U);
      held.emplace_back(*pfn, order);
    } else if (!held.empty()) {
      const std::size_t i = random() % held.size();
      const auto [pfn, order] = held[i];
      held[i] = held.back();
      held.pop_back();
      buddy.free(pfn, order);
      for (std::uint32_t k = 0; k < 1U << order; ++k) free.insert(pfn.v + k);
    }
    ASSERT_EQ(buddy.nr_free(), free.size());
    if (step % 64 == 0) buddy.check();
  }
  for (const auto& [pfn, order] : held) buddy.free(pfn, order);
  buddy.check();
  EXPECT_EQ(buddy.nr_free(), kFrames - 9);
  EXPECT_EQ(buddy.nr_free_blocks(4), 23U);
}

}  // namespace
}  // namespace faultline::kernel
