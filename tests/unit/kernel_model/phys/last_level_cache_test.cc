// SPDX-License-Identifier: Apache-2.0
//
// Which frames a last-level cache holds, which one goes, and what must be written back.
#include "kernel_model/phys/last_level_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/random.h"

namespace faultline::kernel {
namespace {

using faultline::testing::Random;

constexpr std::uint64_t kFrames = 4096;

// Whether the cache held the frame; after that it does.
bool access(LastLevelCache& cache, std::uint32_t frame, bool dirties = false) {
  const bool held = cache.hit(frame, dirties);
  if (!held) cache.fill(frame, dirties);
  return held;
}

std::string held(const LastLevelCache& cache, std::uint32_t frames) {
  std::string out;
  for (std::uint32_t f = 0; f < frames; ++f)
    out += !cache.holds(f) ? '.' : cache.is_dirty(f) ? 'D' : 'c';
  return out;
}

TEST(LastLevelCache, ASetHoldsAsManyFramesAsItHasWays) {
  LastLevelCache cache(kFrames, {.sets = 4, .ways = 2, .slices = 1});
  EXPECT_EQ(cache.capacity(), 8u);
  for (std::uint32_t f = 0; f < 8; ++f) EXPECT_FALSE(access(cache, f));
  EXPECT_EQ(held(cache, 12), "cccccccc....");
  for (std::uint32_t f = 0; f < 8; ++f) EXPECT_TRUE(access(cache, f));
  access(cache, 8);  // of the set of 0 and 4
  EXPECT_EQ(held(cache, 12), ".cccccccc...");
  EXPECT_EQ(cache.frames_held(), 8u);
}

// The lowest numbered way whose access bit is off goes.
TEST(LastLevelCache, WhatWasNotUsedLatelyGoes) {
  LastLevelCache cache(kFrames, {.sets = 1, .ways = 4, .slices = 1});
  for (std::uint32_t f = 0; f < 4; ++f) access(cache, f);  // 3's bit is the only one on
  access(cache, 0);
  EXPECT_EQ(cache.fill(4, false).frame, 1u);
  // The last bit that was off: all others go off.
  EXPECT_EQ(cache.fill(5, false).frame, 2u);
  EXPECT_EQ(cache.fill(6, false).frame, 0u);
  EXPECT_EQ(held(cache, 8), "...cccc.");
}

TEST(LastLevelCache, ADirtyVictimIsToldAndACleanOneIsNot) {
  LastLevelCache cache(kFrames, {.sets = 1, .ways = 2, .slices = 1});
  access(cache, 0, true);
  access(cache, 1);
  EXPECT_EQ(held(cache, 3), "Dc.");
  EXPECT_TRUE(cache.fill(2, false).dirty);
  EXPECT_EQ(held(cache, 3), ".cc");
  cache.hit(1, true);
  EXPECT_EQ(held(cache, 3), ".Dc");
  cache.clean(1);
  EXPECT_EQ(held(cache, 3), ".cc");
  cache.hit(2, true);
  cache.drop(2);
  cache.drop(1);
  EXPECT_EQ(held(cache, 3), "...");
  EXPECT_FALSE(cache.fill(0, false).dirty);  // into an empty way
  EXPECT_EQ(cache.frames_held(), 1u);
}

std::vector<std::uint32_t> in_one_piece(std::uint32_t frames) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t f = 0; f < frames; ++f) all.push_back(f);
  return all;
}
std::vector<std::uint32_t> here_and_there(std::uint32_t frames) {
  Random random{11};
  std::vector<std::uint32_t> all = in_one_piece(kFrames);
  for (std::uint32_t f = 0; f < frames; ++f)
    std::swap(all[f], all[f + random.below(kFrames - f)]);
  all.resize(frames);
  return all;
}

// 1024 frames go into the cache.
double misses_of_a_cycle(const std::vector<std::uint32_t>& frames, unsigned slices = 2,
                         bool random = false) {
  constexpr int kRounds = 50;
  LastLevelCache cache(kFrames, {.sets = 32 * slices,
                                 .ways = 32 / slices,
                                 .slices = slices,
                                 .page_shift = 12,
                                 .random = random});
  int misses = 0;
  for (int round = 0; round < kRounds + 1; ++round)
    for (const std::uint32_t f : frames) misses += access(cache, f) || round == 0 ? 0 : 1;
  return static_cast<double>(misses) / kRounds / static_cast<double>(frames.size());
}

TEST(LastLevelCache, MemoryInOnePieceFillsItEvenly) {
  for (const unsigned slices : {1U, 2U, 4U, 8U}) {
    SCOPED_TRACE(slices);
    EXPECT_EQ(misses_of_a_cycle(in_one_piece(1024), slices), 0);
    EXPECT_GT(misses_of_a_cycle(in_one_piece(1024 + 128), slices), 0);
  }
}

// The policy keeps a part of a block that is too large.
TEST(LastLevelCache, RunsOverByAndBy) {
  EXPECT_EQ(misses_of_a_cycle(here_and_there(256)), 0);
  EXPECT_LT(misses_of_a_cycle(here_and_there(640)), 0.15);
  EXPECT_GT(misses_of_a_cycle(here_and_there(1024)), 0.2);
  EXPECT_LT(misses_of_a_cycle(here_and_there(1024)), 0.7);
  EXPECT_GT(misses_of_a_cycle(here_and_there(2048)), 0.8);
}

TEST(LastLevelCache, PlacementAtRandomMakesOnePieceLieHereAndThere) {
  EXPECT_EQ(misses_of_a_cycle(in_one_piece(256), 2, true), 0);
  EXPECT_NEAR(misses_of_a_cycle(in_one_piece(1024), 2, true),
              misses_of_a_cycle(here_and_there(1024)), 0.1);
}

TEST(LastLevelCache, AnyNumberOfSlicesIsSpreadOver) {
  LastLevelCache cache(kFrames, {.sets = 6, .ways = 64, .slices = 6});
  int misses = 0;
  for (std::uint32_t f = 0; f < kFrames; ++f) misses += access(cache, f) ? 0 : 1;
  EXPECT_EQ(misses, static_cast<int>(kFrames));
  EXPECT_EQ(cache.frames_held(), cache.capacity());
}

// The same policy as a list of ways a set.
class Naive {
 public:
  Naive(std::uint32_t sets, std::size_t ways) : sets_(sets, std::vector<Way>(ways)) {}

  bool access(std::uint32_t frame, bool dirties, bool* wrote_back) {
    std::vector<Way>& set = sets_[frame % sets_.size()];
    Way* way = find(set, [&](const Way& w) { return w.used && w.frame == frame; });
    const bool held = way != nullptr;
    *wrote_back = false;
    if (!held) {
      way = find(set, [](const Way& w) { return !w.used; });
      if (way == nullptr) way = find(set, [](const Way& w) { return !w.young; });
      *wrote_back = way->used && way->dirty;
      *way = {.used = true, .young = false, .dirty = false, .frame = frame};
    }
    way->young = true;
    way->dirty |= dirties;
    if (find(set, [](const Way& w) { return !w.young; }) == nullptr)
      for (Way& w : set) w.young = &w == way;
    return held;
  }

 private:
  struct Way {
    bool used = false, young = false, dirty = false;
    std::uint32_t frame = 0;
  };
  template <typename F>
  static Way* find(std::vector<Way>& set, F f) {
    for (Way& w : set)
      if (f(w)) return &w;
    return nullptr;
  }
  std::vector<std::vector<Way>> sets_;
};

TEST(LastLevelCache, DoesWhatANaiveOneDoes) {
  LastLevelCache cache(kFrames, {.sets = 8, .ways = 6, .slices = 1});
  Naive naive(8, 6);
  Random random{7};
  int hits = 0, write_backs = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto frame = static_cast<std::uint32_t>(random.below(80));
    const bool dirties = random.below(3) == 0;
    bool naive_wrote = false;
    const bool naive_hit = naive.access(frame, dirties, &naive_wrote);
    const bool hit = cache.hit(frame, dirties);
    const bool wrote = !hit && cache.fill(frame, dirties).dirty;
    ASSERT_EQ(hit, naive_hit) << i;
    ASSERT_EQ(wrote, naive_wrote) << i;
    hits += hit ? 1 : 0;
    write_backs += wrote ? 1 : 0;
  }
  EXPECT_GT(hits, 5'000);
  EXPECT_GT(write_backs, 2'000);
}

}  // namespace
}  // namespace faultline::kernel
