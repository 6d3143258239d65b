// SPDX-License-Identifier: Apache-2.0
//
// Virtual time: integer picoseconds, so that a cycle of a 2.4 GHz core (417 ps) is not
// rounded away and sums are exact on every host.  int64 holds 106 days.
#pragma once

#include <compare>
#include <cstdint>

namespace faultline {

class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration ps(std::int64_t n) { return Duration(n); }
  static constexpr Duration ns(std::int64_t n) { return Duration(n * 1'000); }
  static constexpr Duration us(std::int64_t n) { return Duration(n * 1'000'000); }
  static constexpr Duration ms(std::int64_t n) { return Duration(n * 1'000'000'000); }

  [[nodiscard]] constexpr std::int64_t count_ps() const { return ps_; }
  // For reports only: never feed it back into the simulation.
  [[nodiscard]] constexpr double seconds() const {
    return static_cast<double>(ps_) * 1e-12;
  }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration& operator+=(Duration d) {
    ps_ += d.ps_;
    return *this;
  }
  constexpr Duration& operator-=(Duration d) {
    ps_ -= d.ps_;
    return *this;
  }
  friend constexpr Duration operator+(Duration a, Duration b) {
    return Duration(a.ps_ + b.ps_);
  }
  friend constexpr Duration operator-(Duration a, Duration b) {
    return Duration(a.ps_ - b.ps_);
  }
  friend constexpr Duration operator*(Duration a, std::int64_t n) {
    return Duration(a.ps_ * n);
  }
  friend constexpr Duration operator*(std::int64_t n, Duration a) { return a * n; }
  friend constexpr Duration operator/(Duration a, std::int64_t n) {
    return Duration(a.ps_ / n);
  }

 private:
  explicit constexpr Duration(std::int64_t ps) : ps_(ps) {}
  std::int64_t ps_ = 0;
};

// A point in virtual time; zero is the start of the run.
class Time {
 public:
  constexpr Time() = default;
  constexpr explicit Time(Duration since_start) : since_start_(since_start) {}
  static constexpr Time never() { return Time(Duration::ps(INT64_MAX)); }
  [[nodiscard]] constexpr Duration since_start() const { return since_start_; }

  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time& operator+=(Duration d) {
    since_start_ += d;
    return *this;
  }
  friend constexpr Time operator+(Time t, Duration d) { return Time(t.since_start_ + d); }
  friend constexpr Duration operator-(Time a, Time b) {
    return a.since_start_ - b.since_start_;
  }

 private:
  Duration since_start_;
};

namespace time_literals {
constexpr Duration operator""_ps(unsigned long long n) {
  return Duration::ps(static_cast<std::int64_t>(n));
}
constexpr Duration operator""_ns(unsigned long long n) {
  return Duration::ns(static_cast<std::int64_t>(n));
}
constexpr Duration operator""_us(unsigned long long n) {
  return Duration::us(static_cast<std::int64_t>(n));
}
constexpr Duration operator""_ms(unsigned long long n) {
  return Duration::ms(static_cast<std::int64_t>(n));
}
}  // namespace time_literals

}  // namespace faultline
