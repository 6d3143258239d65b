// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/expect.h"

#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "sim/check.h"

namespace faultline::scenario {
namespace {

using Op = Condition::Op;

// Longer operators first.
constexpr std::array<std::pair<std::string_view, Op>, 6> kOperators{{{"<=", Op::kLessEqual},
                                                                     {">=", Op::kMoreEqual},
                                                                     {"==", Op::kEqual},
                                                                     {"!=", Op::kNotEqual},
                                                                     {"<", Op::kLess},
                                                                     {">", Op::kMore}}};
constexpr std::string_view kForms =
    "accepted: \">= 1\" (or < <= > == !=), \"within 25 % of 478.1\"; the bound may be a variant's "
    "name or \"1.5 x name\"";

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

bool take(std::string_view& s, std::string_view prefix) {
  s = trim(s);
  if (!s.starts_with(prefix)) return false;
  s = trim(s.substr(prefix.size()));
  return true;
}

// A decimal number at the start of `s`, read exactly: up to 9 decimals, '_' and ',' between digits.
std::optional<Decimal> take_number(std::string_view& s) {
  std::string_view rest = trim(s);
  const bool negative = !rest.empty() && rest.front() == '-';
  if (negative) rest.remove_prefix(1);
  std::int64_t units = 0;
  unsigned decimals = 0, digits = 0;
  bool point = false;
  while (!rest.empty()) {
    const char c = rest.front();
    if (c >= '0' && c <= '9' && digits < 17 && decimals < 9) {
      units = units * 10 + (c - '0');
      ++digits;
      decimals += point ? 1 : 0;
    } else if (c == '.' && !point) {
      point = true;
    } else if (!((c == '_' || c == ',') && digits > 0 && !point)) {
      break;
    }
    rest.remove_prefix(1);
  }
  if (digits == 0) return std::nullopt;
  s = trim(rest);
  return Decimal(negative ? -units : units, decimals);
}

bool is_variant_name(std::string_view s) {
  if (s.empty() || std::isalpha(static_cast<unsigned char>(s.front())) == 0) return false;
  for (const char c : s)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
      return false;
  return true;
}

// NUMBER, NAME or NUMBER x NAME.
bool take_bound(std::string_view s, Condition& into) {
  const std::optional<Decimal> number = take_number(s);
  if (number && s.empty()) {
    into.number = *number;
    return true;
  }
  if (number && !take(s, "x ")) return false;
  if (!is_variant_name(s)) return false;
  into.number = number.value_or(Decimal::count(1));
  into.variant = std::string(s);
  return true;
}

// number × value, as exact as nine decimals allow.
Decimal times(Decimal number, Decimal value) {
  const Decimal n = number.rounded(3);
  const Decimal v = value.rounded(6);
  return {n.units() * v.units(), n.decimals() + v.decimals()};
}

bool holds(const Condition& c, Decimal actual, Decimal bound) {
  const int order = compare(actual, bound);
  switch (c.op) {
    case Op::kLess: return order < 0;
    case Op::kLessEqual: return order <= 0;
    case Op::kMore: return order > 0;
    case Op::kMoreEqual: return order >= 0;
    case Op::kEqual: return order == 0;
    case Op::kNotEqual: return order != 0;
    case Op::kWithin: break;
  }
  const Decimal distance = actual - bound;
  const Decimal away(distance.units() < 0 ? -distance.units() : distance.units(),
                     distance.decimals());
  const Decimal size(bound.units() < 0 ? -bound.units() : bound.units(), bound.decimals());
  // Where the bound is 0 no distance but 0 is within any percentage.
  if (size.is_zero()) return away.is_zero();
  return compare(Decimal::ratio(away, size, 6), Decimal::ratio(c.percent, Decimal::count(100), 6)) <= 0;
}

}  // namespace

std::variant<Condition, std::string> parse_condition(std::string_view text) {
  Condition c;
  c.text = std::string(trim(text));
  std::string_view rest = c.text;
  const auto wrong = [&](std::string_view what) {
    return std::string(what) + " in condition \"" + c.text + "\"; " + std::string(kForms);
  };
  if (take(rest, "within ")) {
    c.op = Op::kWithin;
    const std::optional<Decimal> percent = take_number(rest);
    if (!percent || percent->units() < 0) return wrong("no percentage after \"within\"");
    c.percent = *percent;
    if (!take(rest, "%") || !take(rest, "of ")) return wrong("no \"% of\" after the percentage");
  } else {
    bool found = false;
    for (const auto& [sign, op] : kOperators) {
      if (!take(rest, sign)) continue;
      c.op = op;
      found = true;
      break;
    }
    if (!found) return wrong("no operator");
  }
  if (!take_bound(rest, c)) return wrong("no number or variant name");
  return c;
}

ExpectationResult evaluate(const Condition& condition, std::string_view metric,
                           const VariantResult& subject, const VariantResult* reference) {
  ExpectationResult out;
  out.text = std::string(metric) + " " + condition.text;
  const Metric* own = subject.metric(metric);
  FAULTLINE_CHECK(own != nullptr);
  out.actual = own->value;
  Decimal bound = condition.number;
  if (!condition.variant.empty()) {
    FAULTLINE_CHECK(reference != nullptr);
    const Metric* theirs = reference->metric(metric);
    FAULTLINE_CHECK(theirs != nullptr);
    bound = times(condition.number, theirs->value);
    out.bound = bound.rounded(3).grouped();
  }
  out.passed = holds(condition, out.actual, bound);
  return out;
}

}  // namespace faultline::scenario
