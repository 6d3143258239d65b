// SPDX-License-Identifier: Apache-2.0
//
// A number of a result: an integer and how many of its digits are decimals.  Results are
// made of these, so that they are exact and read the same whatever compiler made them; a
// double appears only when one is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/time.h"

namespace faultline::scenario {

class Decimal {
 public:
  constexpr Decimal() = default;
  // units / 10^decimals; decimals up to 12.
  constexpr Decimal(std::int64_t units, unsigned decimals)
      : units_(units), decimals_(decimals) {}
  static constexpr Decimal count(std::uint64_t n) {
    return {static_cast<std::int64_t>(n), 0};
  }
  static constexpr Decimal seconds(Duration d) { return {d.count_ps(), 12}; }
  // "478.089": digits with at most 12 decimals and 18 digits in all, perhaps a sign; else
  // nothing.
  static std::optional<Decimal> parse(std::string_view text);
  // The nearest multiple of 10^-decimals.
  static Decimal nearest(double value, unsigned decimals);
  // a / b with that many decimals, rounded half away from zero; 0 if b is 0; the largest
  // one there is if it doesn't fit.
  static Decimal ratio(Decimal a, Decimal b, unsigned decimals);

  [[nodiscard]] constexpr std::int64_t units() const { return units_; }
  [[nodiscard]] constexpr unsigned decimals() const { return decimals_; }
  [[nodiscard]] constexpr bool is_zero() const { return units_ == 0; }
  // Rounded half away from zero to at most `decimals`.
  [[nodiscard]] Decimal rounded(unsigned decimals) const;
  // Exact, with all decimals: "478.089".
  [[nodiscard]] std::string text() const;
  // With thousands separators: "1,467.042".
  [[nodiscard]] std::string grouped() const;
  [[nodiscard]] double to_double() const;

  // -1, 0, 1 as a is less than, equal to or more than b: compares the values, not the
  // digits.
  friend int compare(Decimal a, Decimal b);
  friend bool operator==(Decimal a, Decimal b) { return compare(a, b) == 0; }
  friend Decimal operator-(Decimal a, Decimal b);

 private:
  std::int64_t units_ = 0;
  unsigned decimals_ = 0;
};

int compare(Decimal a, Decimal b);
Decimal operator-(Decimal a, Decimal b);

}  // namespace faultline::scenario
