// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "arch_profiles/input_error.h"

namespace faultline {
namespace {

__extension__ using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKilo = 1'000, kMega = 1'000'000, kGiga = 1'000'000'000;
constexpr unsigned kMaxDigits = 18;  // of the whole number, and of the fraction

constexpr std::array kSizes = {Unit{"B", 1},
                               Unit{"KiB", 1ULL << 10},
                               Unit{"MiB", 1ULL << 20},
                               Unit{"GiB", 1ULL << 30},
                               Unit{"TiB", 1ULL << 40},
                               Unit{"PiB", 1ULL << 50}};
constexpr std::array kRates = {Unit{"B/s", 1}, Unit{"kB/s", kKilo}, Unit{"MB/s", kMega},
                               Unit{"GB/s", kGiga}};
constexpr std::array kTimes = {Unit{"ps", 1}, Unit{"ns", kKilo}, Unit{"us", kMega},
                               Unit{"ms", kGiga}, Unit{"s", kGiga* kKilo}};
constexpr std::array kFrequencies = {Unit{"Hz", 1}, Unit{"kHz", kKilo}, Unit{"MHz", kMega},
                                     Unit{"GHz", kGiga}};

struct DimensionFacts {
  std::string_view name;  // "a size"
  std::string_view example;
  std::string_view base;  // what a value counts
  std::span<const Unit> units;
};

DimensionFacts facts(Dimension dimension) {
  switch (dimension) {
    case Dimension::kSize:
      return {"a size", "64KiB", "bytes", kSizes};
    case Dimension::kRate:
      return {"a rate", "17 GB/s", "bytes a second", kRates};
    case Dimension::kTime:
      return {"a time", "1.2 us", "picoseconds", kTimes};
    case Dimension::kFrequency:
      return {"a frequency", "2.4 GHz", "hertz", kFrequencies};
  }
  return {};
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "64 KB" and "64kib" are refused, but we know what was meant.
std::string unit_hint(std::string_view unit, Dimension dimension) {
  if (dimension == Dimension::kSize && unit.size() == 2 && lower(unit.substr(1)) == "b")
    return "; sizes are binary: write \"" +
           std::string(
               1, static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])))) +
           "iB\"";
  for (const Unit& u : facts(dimension).units)
    if (lower(u.name) == lower(unit)) return "; write \"" + std::string(u.name) + "\"";
  return {};
}

struct Number {
  std::uint64_t whole = 0, fraction = 0, scale = 1;  // whole + fraction / scale
  std::size_t length = 0;                            // characters read; 0: not a number
};

Number read_number(std::string_view text) {
  Number n;
  std::size_t at = 0;
  const auto digits = [&](std::uint64_t& value, std::uint64_t* scale) {
    std::size_t count = 0;
    for (; at < text.size() && (std::isdigit(static_cast<unsigned char>(text[at])) != 0 ||
                                (text[at] == '_' && count != 0));
         ++at) {
      if (text[at] == '_') continue;
      value = value * 10 + static_cast<unsigned>(text[at] - '0');
      if (scale != nullptr) *scale *= 10;
      if (++count > kMaxDigits) return false;
    }
    return count != 0;
  };
  if (!digits(n.whole, nullptr)) return n;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits(n.fraction, &n.scale)) return n;
  }
  n.length = at;
  return n;
}

Quantity refused(std::string problem) {
  return {0, std::move(problem)};
}

}  // namespace

Quantity parse_quantity(std::string_view text, Dimension dimension) {
  const DimensionFacts d = facts(dimension);
  const std::string quoted = "\"" + std::string(text) + "\"";
  const Number number = read_number(text);
  if (number.length == 0)
    return refused(quoted + " is not " + std::string(d.name) + ", such as \"" +
                   std::string(d.example) + "\"");
  std::string_view unit = text.substr(number.length);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return refused(quoted + " has no unit");

  const auto* found = std::find_if(d.units.data(), d.units.data() + d.units.size(),
                                   [&](const Unit& u) { return u.name == unit; });
  if (found == d.units.data() + d.units.size())
    return refused("\"" + std::string(unit) + "\" is not the unit of " +
                   std::string(d.name) + unit_hint(unit, dimension));
  const Wide fraction = Wide{number.fraction} * found->factor;
  if (fraction % number.scale != 0)
    return refused(quoted + " is not a whole number of " + std::string(d.base));
  const Wide value = Wide{number.whole} * found->factor + fraction / number.scale;
  if (value > INT64_MAX) return refused(quoted + " is too large");
  return {static_cast<std::uint64_t>(value), {}};
}

std::vector<std::string> units_of(Dimension dimension) {
  std::vector<std::string> out;
  for (const Unit& u : facts(dimension).units) out.emplace_back(u.name);
  return out;
}

std::string format_quantity(std::uint64_t value, Dimension dimension) {
  const auto units = facts(dimension).units;
  // The largest unit that gives at most three decimals, exactly.
  for (std::size_t i = units.size(); i-- > 0;) {
    const Unit& u = units[i];
    if (value < u.factor && i != 0) continue;
    const Wide thousandths = Wide{value} * 1000;
    if (thousandths % u.factor != 0) continue;
    std::string out = std::to_string(value / u.factor);
    auto rest = static_cast<unsigned>(thousandths / u.factor % 1000);
    if (rest != 0) {
      std::string decimals = std::to_string(1000 + rest).substr(1);
      decimals.erase(decimals.find_last_not_of('0') + 1);
      out += "." + decimals;
    }
    return out + " " + std::string(u.name);
  }
  return {};
}

}  // namespace faultline
