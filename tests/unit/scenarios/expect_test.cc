// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/expect.h"

#include <gtest/gtest.h>

namespace faultline::scenario {
namespace {

VariantResult with(std::string name, Decimal elapsed) {
  VariantResult v;
  v.name = std::move(name);
  v.metrics.push_back({"elapsed_s", elapsed});
  return v;
}

bool holds(std::string_view condition, Decimal actual, Decimal reported = Decimal::count(100)) {
  const auto parsed = parse_condition(condition);
  const auto* error = std::get_if<std::string>(&parsed);
  EXPECT_EQ(error, nullptr) << *error;
  if (error != nullptr) return false;
  const VariantResult reference = with("reported", reported);
  return evaluate(std::get<Condition>(parsed), "elapsed_s", with("own", actual), &reference).passed;
}

std::string error_of(std::string_view condition) {
  const auto parsed = parse_condition(condition);
  const auto* error = std::get_if<std::string>(&parsed);
  return error != nullptr ? *error : "";
}

TEST(Expect, ComparesWithANumber) {
  EXPECT_TRUE(holds(">= 1", Decimal::count(1)));
  EXPECT_FALSE(holds("> 1", Decimal::count(1)));
  EXPECT_TRUE(holds("== 1_048_640", Decimal::count(1'048'640)));
  EXPECT_FALSE(holds("!= 34", Decimal::count(34)));
  EXPECT_TRUE(holds("<1.5", Decimal(1'499, 3)));
  EXPECT_TRUE(holds("<= 1.5", Decimal(15, 1)));
}

TEST(Expect, ToleranceIsTwoSidedAndInclusive) {
  EXPECT_TRUE(holds("within 25 % of 100", Decimal::count(125)));
  EXPECT_TRUE(holds("within 25 % of 100", Decimal::count(75)));
  EXPECT_FALSE(holds("within 25 % of 100", Decimal(125'001, 3)));
  EXPECT_FALSE(holds("within 25 % of 100", Decimal(74'999, 3)));
  EXPECT_TRUE(holds("within 0.5% of 478.1", Decimal(4775, 1)));
}

TEST(Expect, BoundMayBeAnotherVariant) {
  EXPECT_TRUE(holds("within 2 % of reported", Decimal::count(102)));
  EXPECT_FALSE(holds("within 2 % of reported", Decimal::count(103)));
  EXPECT_TRUE(holds("> 1.5 x reported", Decimal::count(151)));
  EXPECT_FALSE(holds("> 1.5 x reported", Decimal::count(150)));
  EXPECT_TRUE(holds("< reported", Decimal::count(99)));
}

TEST(Expect, SaysWhatItWasHeldAgainst) {
  const auto parsed = parse_condition("> 1.5 x reported");
  const VariantResult reference = with("reported", Decimal::count(2000));
  const ExpectationResult r =
      evaluate(std::get<Condition>(parsed), "elapsed_s", with("own", Decimal::count(1)), &reference);
  EXPECT_EQ(r.text, "elapsed_s > 1.5 x reported");
  EXPECT_EQ(r.bound.substr(0, 7), "3,000.0");
  EXPECT_FALSE(r.passed);
}

TEST(Expect, RefusesWhatItCannotRead) {
  EXPECT_NE(error_of("=> 1").find("no operator"), std::string::npos);
  EXPECT_NE(error_of(">= ").find("no number"), std::string::npos);
  EXPECT_NE(error_of(">= 1 s").find("no number or variant name"), std::string::npos);
  EXPECT_NE(error_of("within 5 of 3").find("\"% of\""), std::string::npos);
  EXPECT_NE(error_of("within % of 3").find("no percentage"), std::string::npos);
  EXPECT_NE(error_of("within -3 % of 3").find("no percentage"), std::string::npos);
  EXPECT_NE(error_of("").find("no operator"), std::string::npos);
  EXPECT_NE(error_of("> 2 times reported").find("accepted:"), std::string::npos);
}

}  // namespace
}  // namespace faultline::scenario
