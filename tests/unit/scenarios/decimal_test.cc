// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/decimal.h"

#include <gtest/gtest.h>

namespace faultline::scenario {
namespace {

TEST(Decimal, PrintsAllItsDigits) {
  EXPECT_EQ(Decimal(478'089, 3).text(), "478.089");
  EXPECT_EQ(Decimal(5, 3).text(), "0.005");
  EXPECT_EQ(Decimal(-5, 3).text(), "-0.005");
  EXPECT_EQ(Decimal::count(0).text(), "0");
  EXPECT_EQ(Decimal::seconds(Duration::ps(1)).text(), "0.000000000001");
}

TEST(Decimal, GroupsThousands) {
  EXPECT_EQ(Decimal::count(1'048'640).grouped(), "1,048,640");
  EXPECT_EQ(Decimal(1'467'042, 3).grouped(), "1,467.042");
  EXPECT_EQ(Decimal::count(999).grouped(), "999");
  EXPECT_EQ(Decimal(-1'000, 0).grouped(), "-1,000");
}

TEST(Decimal, RoundsHalfAwayFromZero) {
  EXPECT_EQ(Decimal(1'25, 2).rounded(1).text(), "1.3");
  EXPECT_EQ(Decimal(-1'25, 2).rounded(1).text(), "-1.3");
  EXPECT_EQ(Decimal(1'24, 2).rounded(1).text(), "1.2");
  EXPECT_EQ(Decimal(7, 0).rounded(3).text(), "7");
}

TEST(Decimal, RatioOfDifferentScales) {
  const Decimal sys = Decimal::seconds(Duration::ms(1'467'041));
  EXPECT_EQ(Decimal::ratio(sys, Decimal(478'089, 3), 3).text(), "3.069");
  EXPECT_EQ(Decimal::ratio(Decimal::count(1), Decimal::count(0), 3).text(), "0.000");
  EXPECT_EQ(Decimal::ratio(Decimal::count(2), Decimal::count(3), 4).text(), "0.6667");
}

TEST(Decimal, ComparesValuesNotDigits) {
  EXPECT_EQ(compare(Decimal(10, 1), Decimal::count(1)), 0);
  EXPECT_LT(compare(Decimal(9, 1), Decimal::count(1)), 0);
  EXPECT_GT(compare(Decimal::count(-1), Decimal(-11, 1)), 0);
}

TEST(Decimal, NearestToADouble) {
  EXPECT_EQ(Decimal::nearest(478.089, 6).text(), "478.089000");
  EXPECT_EQ(Decimal::nearest(0.1 + 0.2, 6).text(), "0.300000");
}

}  // namespace
}  // namespace faultline::scenario
