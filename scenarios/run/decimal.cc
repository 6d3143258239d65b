// SPDX-License-Identifier: Apache-2.0
//
// Decimal arithmetic in 128 bits; see decimal.h.
#include "scenarios/run/decimal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/check.h"

namespace faultline::scenario {
namespace {

__extension__ using Wide = __int128;

constexpr unsigned kMostDecimals = 12;

constexpr std::int64_t power_of_ten(unsigned n) {
  std::int64_t p = 1;
  while (n-- > 0) p *= 10;
  return p;
}

Wide divide_rounding(Wide a, Wide b) {
  const bool negative = (a < 0) != (b < 0);
  const Wide x = a < 0 ? -a : a;
  const Wide y = b < 0 ? -b : b;
  const Wide q = (x + y / 2) / y;
  return negative ? -q : q;
}

std::int64_t narrow(Wide v) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::clamp<Wide>(v, -Wide{kMost}, Wide{kMost}));
}

// `value` of a number with `from` decimals as a number with `to` decimals.
Wide rescale(Wide value, unsigned from, unsigned to) {
  return to >= from ? value * power_of_ten(to - from)
                    : divide_rounding(value, power_of_ten(from - to));
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  constexpr std::size_t kMostDigits = 18;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::int64_t units = 0;
  std::size_t digits = 0;
  const std::size_t point = std::min(text.find('.'), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == point) continue;
    if (text[i] < '0' || text[i] > '9' || ++digits > kMostDigits) return std::nullopt;
    units = units * 10 + (text[i] - '0');
  }
  const std::size_t decimals = point == text.size() ? 0 : text.size() - point - 1;
  const bool digits_missing = point == 0 || (point != text.size() && decimals == 0);
  if (digits == 0 || digits_missing || decimals > kMostDecimals) return std::nullopt;
  return Decimal(negative ? -units : units, static_cast<unsigned>(decimals));
}

Decimal Decimal::nearest(double value, unsigned decimals) {
  FAULTLINE_CHECK_LE(decimals, kMostDecimals);
  return {std::llround(value * static_cast<double>(power_of_ten(decimals))), decimals};
}

Decimal Decimal::ratio(Decimal a, Decimal b, unsigned decimals) {
  if (b.is_zero()) return {0, decimals};
  // Both with the same decimals, then the quotient's own; a.units stays below 2^63, so that
  // the product of the two scalings must be kept below 2^63, too.
  Wide x = a.units_;
  Wide y = b.units_;
  if (a.decimals_ < b.decimals_) x *= power_of_ten(b.decimals_ - a.decimals_);
  if (b.decimals_ < a.decimals_) y *= power_of_ten(a.decimals_ - b.decimals_);
  FAULTLINE_CHECK_LE(decimals, 6U);
  return {narrow(divide_rounding(x * power_of_ten(decimals), y)), decimals};
}

Decimal Decimal::rounded(unsigned decimals) const {
  if (decimals >= decimals_) return *this;
  return {narrow(rescale(units_, decimals_, decimals)), decimals};
}

std::string Decimal::text() const {
  const bool negative = units_ < 0;
  std::string digits = std::to_string(negative ? -units_ : units_);
  if (digits.size() <= decimals_) digits.insert(0, decimals_ + 1 - digits.size(), '0');
  if (decimals_ > 0) digits.insert(digits.size() - decimals_, 1, '.');
  return negative ? "-" + digits : digits;
}

std::string Decimal::grouped() const {
  std::string s = text();
  const std::size_t first = units_ < 0 ? 1 : 0;
  std::size_t end = std::min(s.find('.'), s.size());
  while (end > first + 3) {
    end -= 3;
    s.insert(end, 1, ',');
  }
  return s;
}

double Decimal::to_double() const {
  return static_cast<double>(units_) / static_cast<double>(power_of_ten(decimals_));
}

int compare(Decimal a, Decimal b) {
  const unsigned d = std::max(a.decimals_, b.decimals_);
  const Wide x = rescale(a.units_, a.decimals_, d);
  const Wide y = rescale(b.units_, b.decimals_, d);
  return x < y ? -1 : (x > y ? 1 : 0);
}

Decimal operator-(Decimal a, Decimal b) {
  const unsigned d = std::max(a.decimals_, b.decimals_);
  return {narrow(rescale(a.units_, a.decimals_, d) - rescale(b.units_, b.decimals_, d)), d};
}

}  // namespace faultline::scenario
