// SPDX-License-Identifier: Apache-2.0
//
// What a scenario expects of its results: `"sys_s / elapsed_s" = "between 2.5 and 3.9"`.
//
// The key is a term or terms joined by + - * / (with spaces round them, left to right, *
// and / first).  A term is a number, a metric of the variant at hand (`minor-faults`), a
// metric of a named variant (`reported.elapsed_s`), or `share(clear_page)`: the share of
// busy time of the stacks that contain that function.  The value is one of
//
//   "== 34"   "!= 0"   ">= 1"   "> 1"   "<= 1"   "< 2"
//   "between 2.5 and 3.9"
//   "within 25% of 478.1"        or of any other expression
//   "within 25% of published"    the [[published]] number of that metric and variant
//   "within 2%"                  of 1: for ratios
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/document.h"
#include "scenarios/run/result.h"

namespace faultline::scenario {

struct Term {
  enum class Kind : std::uint8_t { kNumber, kMetric, kShare, kPublished };
  Kind kind = Kind::kNumber;
  char op = '+';  // what joins it to the terms before
  Decimal number;
  std::string variant;  // empty: the variant at hand
  std::string name;     // metric or function
};

struct Expression {
  std::vector<Term> terms;
};

struct Condition {
  enum class Test : std::uint8_t {
    kEqual,
    kNotEqual,
    kAtLeast,
    kAbove,
    kAtMost,
    kBelow,
    kBetween,
    kWithin
  };
  std::string text;  // 'elapsed_s within 25% of published'
  Place place;
  Test test = Test::kEqual;
  Expression subject, low, high;  // most tests use `low` alone; kWithin: it is the middle
  Decimal tolerance;              // kWithin: 25, for 25%

  // The variants it names, without the one at hand.
  [[nodiscard]] std::vector<std::string> variants() const;
  // It says of each metric whose it is, and so means the same wherever it stands.
  [[nodiscard]] bool names_all_variants() const;
};

// Throws InputError at the key or the value.
[[nodiscard]] Condition parse_condition(const Entry& entry, std::string_view where);

// Whether it holds for `variant`, one of result.variants; nothing if a variant that it
// names wasn't run.  A metric that doesn't exist fails the condition, and the text says so.
[[nodiscard]] std::optional<Expectation> check(const Condition& condition,
                                               const Result& result,
                                               const VariantResult& variant);

}  // namespace faultline::scenario
