// SPDX-License-Identifier: Apache-2.0
// Checks: what passes is silent, what fails names both operands.
#include "sim/check.h"

#include <gtest/gtest.h>

namespace faultline {
namespace {

TEST(Check, PassesSilently) {
  const int* none = nullptr;
  FAULTLINE_CHECK(1 + 1 == 2);
  FAULTLINE_CHECK_EQ(2, 1 + 1);
  FAULTLINE_CHECK_EQ(none, nullptr);
  FAULTLINE_CHECK_LT(Duration::ns(1), Duration::ns(2));
}

TEST(CheckDeathTest, PrintsBothOperands) {
  EXPECT_DEATH(FAULTLINE_CHECK_EQ(1 + 1, 3), R"(1 \+ 1 == 3 \(2 vs 3\))");
  EXPECT_DEATH(FAULTLINE_CHECK_LE(Duration::ns(2), Duration::ns(1)), "2000 ps vs 1000 ps");
  EXPECT_DEATH(FAULTLINE_CHECK_NE(std::string("a"), "a"), "\"a\" vs \"a\"");
  EXPECT_DEATH(FAULTLINE_CHECK(false), "check failed: false");
}

}  // namespace
}  // namespace faultline
