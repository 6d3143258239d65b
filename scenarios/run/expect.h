// SPDX-License-Identifier: Apache-2.0
//
// Conditions on results, as scenario files state them under [expect].
//
// A condition is a comparison or a tolerance:
//     thp_fault_alloc = ">= 1"
//     elapsed_s       = "within 25 % of 478.1"
//     elapsed_s       = "within 2 % of reported"      # the same metric of another variant
//     sys_per_elapsed = "> 1.5 x reported"
// Operators: < <= > >= == !=.  The bound is a number, or a variant's name, or a number times one.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "scenarios/run/decimal.h"
#include "scenarios/run/result.h"

namespace faultline::scenario {

struct Condition {
  enum class Op : std::uint8_t { kLess, kLessEqual, kMore, kMoreEqual, kEqual, kNotEqual, kWithin };
  Op op = Op::kEqual;
  Decimal percent;              // kWithin
  Decimal number;               // the bound, or the factor before `variant`
  std::string variant;          // empty: the bound is `number`
  std::string text;             // as written
};

// The condition, or one sentence that says what is wrong and what is accepted.
[[nodiscard]] std::variant<Condition, std::string> parse_condition(std::string_view text);

// Holds `metric` of `subject` against the condition.  `reference` is the variant that the condition
// names (null if it names none).  Precondition: both have that metric.
[[nodiscard]] ExpectationResult evaluate(const Condition& condition, std::string_view metric,
                                         const VariantResult& subject,
                                         const VariantResult* reference);

}  // namespace faultline::scenario
