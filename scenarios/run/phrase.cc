// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/phrase.h"

#include <algorithm>

namespace faultline::scenario {
namespace {

std::int64_t magnitude(std::int64_t v) {
  return v < 0 ? -v : v;
}

}  // namespace

std::string say_value(Decimal value) {
  // As many decimals as leave four digits in all.
  std::int64_t whole = magnitude(value.units());
  for (unsigned i = 0; i < value.decimals(); ++i) whole /= 10;
  const unsigned decimals = whole >= 1000 ? 0 : whole >= 100 ? 1 : whole >= 10 ? 2 : 3;
  return value.rounded(decimals).grouped();
}

std::string say_seconds(Duration d) {
  const std::int64_t ps = magnitude(d.count_ps());
  if (ps == 0) return "0 s";
  if (ps >= 1'000'000'000) return say_value(Decimal(d.count_ps(), 12)) + " s";
  if (ps >= 1'000'000) return say_value(Decimal(d.count_ps(), 6)) + " us";
  return say_value(Decimal(d.count_ps(), 3)) + " ns";
}

std::string say_percent(Duration part, Duration whole) {
  const Decimal share = Decimal::ratio(Decimal::seconds(part), Decimal::seconds(whole), 3);
  const Decimal percent(share.units(), 1);
  if (percent.is_zero() && part > Duration{}) return "< 0.1 %";
  return percent.text() + " %";
}

std::string say_ratio(Duration part, Duration whole) {
  return Decimal::ratio(Decimal::seconds(part), Decimal::seconds(whole), 2).text();
}

std::string say_change(Decimal before, Decimal now) {
  if (compare(before, now) == 0) return "unchanged";
  if (before.is_zero() || now.is_zero()) return say_value(before) + " -> " + say_value(now);
  const Decimal up = Decimal::ratio(now, before, 4);
  const Decimal down = Decimal::ratio(before, now, 4);
  if (compare(up, Decimal::count(2)) >= 0) return say_value(up.rounded(2)) + " times more";
  if (compare(down, Decimal::count(2)) >= 0)
    return say_value(down.rounded(2)) + " times less";
  const Decimal percent = Decimal(up.units() - 10'000, 2);  // up - 1, in per cent
  if (percent.is_zero()) return "unchanged within 0.01 %";
  return (percent.units() > 0 ? "+" : "") + percent.text() + " %";
}

std::string say_place(const Frames& frames, std::size_t count) {
  std::string out;
  const std::size_t n = std::min(count, frames.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) out += " < ";
    out += frames[frames.size() - 1 - i];
  }
  return out.empty() ? "(nowhere)" : out;
}

}  // namespace faultline::scenario
