// SPDX-License-Identifier: Apache-2.0
// Random streams and histograms.
#include <gtest/gtest.h>

#include <array>

#include "sim/histogram.h"
#include "sim/rng.h"

namespace faultline {
namespace {

TEST(Rng, AStreamIsGivenBySeedAndName) {
  Rng a(1, "sizes"), same(1, "sizes"), name(1, "times"), seed(2, "sizes"),
      one(1, "sizes", 1);
  const std::uint64_t x = a.next();
  EXPECT_EQ(x, same.next());
  EXPECT_NE(x, name.next());
  EXPECT_NE(x, seed.next());
  EXPECT_NE(x, one.next());
  EXPECT_NE(x, a.next());
}

TEST(Rng, TheNumbersAreTheSameForever) {
  Rng rng(42, "golden");
  EXPECT_EQ(rng.next(), 0xf6662660f1a29688u);
  EXPECT_EQ(rng.below(1000), 179u);
}

TEST(Rng, BelowIsUniform) {
  Rng rng(7, "dice");
  std::array<int, 6> counts{};
  for (int i = 0; i < 60'000; ++i) ++counts.at(rng.below(6));
  for (const int n : counts) EXPECT_NEAR(n, 10'000, 400);  // 4 sigma
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rng.below(1), 0u);
    const std::uint64_t x = rng.between(10, 12);
    EXPECT_TRUE(x >= 10 && x <= 12);
  }
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (std::uint64_t v = 0; v < 32; ++v) h.add(v);
  const auto buckets = h.buckets();
  ASSERT_EQ(buckets.size(), 32u);
  for (std::uint64_t v = 0; v < 32; ++v) {
    EXPECT_EQ(buckets[v].low, v);
    EXPECT_EQ(buckets[v].high, v);
  }
}

TEST(Histogram, BucketsCoverEveryValueOnce) {
  for (std::uint64_t v : {32ull, 33ull, 63ull, 64ull, 1'000ull, 123'456'789ull, 1ull << 40,
                          (1ull << 62) + 12345}) {
    Histogram h;
    h.add(v);
    const auto b = h.buckets().at(0);
    EXPECT_LE(b.low, v);
    EXPECT_GE(b.high, v);
    EXPECT_LE((b.high - b.low + 1) * 16, b.low);
    Histogram next;
    next.add(b.high + 1);
    EXPECT_EQ(next.buckets().at(0).low, b.high + 1);
  }
}

TEST(Histogram, Percentiles) {
  Histogram h;
  EXPECT_EQ(h.at_most(50, 100), 0u);
  for (std::uint64_t v = 1; v <= 1000; ++v) h.add(v);
  EXPECT_EQ(h.count(), 1000u);
  EXPECT_EQ(h.sum(), 500'500u);
  EXPECT_EQ(h.min(), 1u);
  EXPECT_NEAR(static_cast<double>(h.at_most(50, 100)), 500, 500.0 / 16);
  EXPECT_NEAR(static_cast<double>(h.at_most(99, 100)), 990, 990.0 / 16);
  EXPECT_EQ(h.at_most(1, 1), 1000u);
}

}  // namespace
}  // namespace faultline
