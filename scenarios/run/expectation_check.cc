// SPDX-License-Identifier: Apache-2.0
//
// Whether a condition holds for what was run.
//
// Values are doubles here: IEEE division and multiplication give the same bits everywhere,
// and only the verdict and a rounded value reach the result.
#include <algorithm>
#include <cmath>
#include <span>

#include "scenarios/run/expectation.h"

namespace faultline::scenario {
namespace {

const VariantResult* find_variant(const Result& result, std::string_view name) {
  for (const VariantResult& v : result.variants)
    if (v.name == name) return &v;
  return nullptr;
}

bool has_frame(std::string_view stack, std::string_view function) {
  while (!stack.empty()) {
    const std::size_t end = std::min(stack.find(';'), stack.size());
    if (stack.substr(0, end) == function) return true;
    stack.remove_prefix(std::min(stack.size(), end + 1));
  }
  return false;
}

double share_of(const VariantResult& v, std::string_view function) {
  Duration with;
  Duration all;
  for (const StackShare& s : v.top) {
    all += s.self;
    if (has_frame(s.stack, function)) with += s.self;
  }
  return all == Duration()
             ? 0.0
             : static_cast<double>(with.count_ps()) / static_cast<double>(all.count_ps());
}

double value_of(const Term& term, const Result& result, const VariantResult& own) {
  const VariantResult& v = term.variant.empty() ? own : *find_variant(result, term.variant);
  switch (term.kind) {
    case Term::Kind::kNumber:
      return term.number.to_double();
    case Term::Kind::kMetric: {
      const Metric* metric = v.metric(term.name);
      return metric == nullptr ? std::nan("") : metric->value.to_double();
    }
    case Term::Kind::kShare:
      return share_of(v, term.name);
    case Term::Kind::kPublished:
      for (const Published& p : v.published)
        if (p.metric == term.name) return p.theirs.to_double();
      return std::nan("");
  }
  return std::nan("");
}

// * and / bind closer than + and -.
double value_of(const Expression& expression, const Result& result,
                const VariantResult& own) {
  double sum = 0;
  double product = 0;
  for (const Term& term : expression.terms) {
    const double value = value_of(term, result, own);
    if (term.op == '*') {
      product *= value;
    } else if (term.op == '/') {
      product /= value;
    } else {
      sum += product;
      product = term.op == '-' ? -value : value;
    }
  }
  return sum + product;
}

bool holds(const Condition& c, double actual, double low, double high) {
  switch (c.test) {
    case Condition::Test::kEqual:
      return actual == low;
    case Condition::Test::kNotEqual:
      return actual != low;
    case Condition::Test::kAtLeast:
      return actual >= low;
    case Condition::Test::kAbove:
      return actual > low;
    case Condition::Test::kAtMost:
      return actual <= low;
    case Condition::Test::kBelow:
      return actual < low;
    case Condition::Test::kBetween:
      return low <= actual && actual <= high;
    case Condition::Test::kWithin:
      return std::abs(actual - low) <= std::abs(low) * c.tolerance.to_double() / 100;
  }
  return false;
}

// As the result shows it: a metric exactly, anything computed to six decimals.
Decimal shown(const Condition& c, double actual, const Result& result,
              const VariantResult& own) {
  const Term& first = c.subject.terms.front();
  if (c.subject.terms.size() == 1 && first.kind == Term::Kind::kMetric) {
    const VariantResult& v =
        first.variant.empty() ? own : *find_variant(result, first.variant);
    return v.metric(first.name)->value;
  }
  constexpr double kMost = 9e12;  // what fits with six decimals
  return Decimal::nearest(std::clamp(actual, -kMost, kMost), 6);
}

}  // namespace

std::optional<Expectation> check(const Condition& condition, const Result& result,
                                 const VariantResult& variant) {
  for (const std::string& name : condition.variants())
    if (find_variant(result, name) == nullptr) return std::nullopt;
  const double actual = value_of(condition.subject, result, variant);
  if (!std::isfinite(actual))
    return Expectation{condition.text + " (no such number)", false, {}};
  const double low = value_of(condition.low, result, variant);
  const double high =
      condition.high.terms.empty() ? 0.0 : value_of(condition.high, result, variant);
  return Expectation{condition.text, holds(condition, actual, low, high),
                     shown(condition, actual, result, variant)};
}

}  // namespace faultline::scenario
