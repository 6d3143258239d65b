// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "scenarios/run/expectation.h"

namespace faultline::scenario {
namespace {

Condition condition(const std::string& key, const std::string& value) {
  return parse_condition(
      parse_toml("\"" + key + "\" = \"" + value + "\"", "e.toml").entries.at(0),
      "[expect]");
}

std::string message(const std::string& key, const std::string& value) {
  try {
    (void)condition(key, value);
  } catch (const InputError& error) {
    return error.complaint().message;
  }
  return "accepted";
}

Result two_variants() {
  VariantResult a;
  a.name = "reported";
  a.metrics = {{"elapsed_s", Decimal(478'000, 3)},
               {"sys_s", Decimal(1'434'000, 3)},
               {"minor-faults", Decimal::count(34)},
               {"nothing", Decimal::count(0)}};
  a.published = {{"elapsed_s", "mail", Decimal(500, 0), {}, {}, Role::kPrediction}};
  a.top = {{"main;fault;clear_page", 1, Duration::ns(90), {}},
           {"main;clear_page_more", 1, Duration::ns(10), {}}};
  VariantResult b;
  b.name = "rwsem-5.3";
  b.metrics = {{"elapsed_s", Decimal(239'000, 3)}};
  Result result;
  result.variants = {a, b};
  return result;
}

bool holds(const std::string& key, const std::string& value) {
  const Result result = two_variants();
  const auto held = check(condition(key, value), result, result.variants[0]);
  return held.has_value() && held->passed;
}

TEST(Expectation, ComparesAMetricWithANumber) {
  EXPECT_TRUE(holds("minor-faults", "== 34"));
  EXPECT_FALSE(holds("minor-faults", "!= 34"));
  EXPECT_TRUE(holds("minor-faults", ">= 34"));
  EXPECT_FALSE(holds("minor-faults", "> 34"));
  EXPECT_TRUE(holds("minor-faults", "<= 34"));
  EXPECT_FALSE(holds("minor-faults", "< 34"));
  EXPECT_TRUE(holds("minor-faults", "between 34 and 35"));
  EXPECT_FALSE(holds("minor-faults", "between 35 and 40"));
}

TEST(Expectation, WithinAPercentageOfANumberOrOfWhatIsPublished) {
  EXPECT_TRUE(holds("elapsed_s", "within 10% of 500"));
  EXPECT_FALSE(holds("elapsed_s", "within 4% of 500"));
  EXPECT_TRUE(holds("elapsed_s", "within 10% of published"));
  EXPECT_FALSE(holds("elapsed_s", "within 4% of published"));
  EXPECT_TRUE(holds("elapsed_s", "within 0.1% of 2 * rwsem-5.3.elapsed_s"));
  EXPECT_TRUE(holds("elapsed_s / reported.elapsed_s", "within 0%"));
}

TEST(Expectation, ProductsBindCloserThanSums) {
  EXPECT_TRUE(holds("sys_s / elapsed_s", "== 3"));
  EXPECT_TRUE(holds("2 + 3 * 4 - 6 / 3", "== 12"));
  EXPECT_TRUE(holds("elapsed_s - rwsem-5.3.elapsed_s", "== rwsem-5.3.elapsed_s"));
}

TEST(Expectation, ShareCountsTheStacksThatHoldThatFunction) {
  EXPECT_TRUE(holds("share(clear_page)", "== 0.9"));
  EXPECT_TRUE(holds("share(main)", "== 1"));
  EXPECT_TRUE(holds("reported.share(fault)", "between 0.89 and 0.91"));
  EXPECT_TRUE(holds("share(clear)", "== 0"));
}

TEST(Expectation, ADivisionByNothingFails) {
  EXPECT_FALSE(holds("elapsed_s / nothing", "> 1000000000"));
  EXPECT_FALSE(holds("nothing / nothing", ">= 0"));
}

TEST(Expectation, IsSkippedWhenAVariantThatItNamesWasNotRun) {
  Result result = two_variants();
  result.variants.pop_back();
  const Condition c = condition("elapsed_s / rwsem-5.3.elapsed_s", "== 2");
  EXPECT_EQ(c.variants(), std::vector<std::string>{"rwsem-5.3"});
  EXPECT_FALSE(check(c, result, result.variants[0]).has_value());
}

TEST(Expectation, ShowsTheActualValue) {
  const Result result = two_variants();
  EXPECT_EQ(check(condition("elapsed_s", "> 1"), result, result.variants[0])->actual.text(),
            "478.000");
  EXPECT_EQ(check(condition("1 / 3", "> 1"), result, result.variants[0])->actual.text(),
            "0.333333");
  EXPECT_EQ(check(condition("elapsed_s", "> 1"), result, result.variants[0])->text,
            "elapsed_s > 1");
}

TEST(Expectation, BadSyntaxIsNamed) {
  EXPECT_EQ(message("a", "34"), "[expect] a: \"34\" does not begin with a comparison");
  EXPECT_EQ(message("a", "=> 34"),
            "[expect] a: \"=> 34\" does not begin with a comparison");
  EXPECT_EQ(message("a", ">="), "[expect] a: a number or metric is missing");
  EXPECT_EQ(message("a", ">= 3 4"), "[expect] a: \"4\" is not one of + - * /");
  EXPECT_EQ(message("a", ">= x$y"),
            "[expect] a: \"x$y\" is no number, metric or variant.metric");
  EXPECT_EQ(message("share(a", "> 1"),
            "[expect] share(a: \"share(a\" must end in a function name and )");
  EXPECT_EQ(message("a", "within 5 of 3"),
            "[expect] a: within needs a percentage: within 25% of published");
  EXPECT_EQ(message("a", "within 5% off 3"),
            "[expect] a: \"of\" must follow the percentage, not \"off\"");
  EXPECT_EQ(message("a / b", "within 5% of published"),
            "[expect] a / b: only a metric alone can be held against what is published");
  EXPECT_EQ(message("a.", "> 1"),
            "[expect] a.: \"a.\" is no number, metric or variant.metric");
}

}  // namespace
}  // namespace faultline::scenario
