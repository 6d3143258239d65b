// SPDX-License-Identifier: Apache-2.0
//
// Quantities as people write them: "64KiB", "17 GB/s", "1.2 us", "2.4 GHz".
//
// Each is read exactly, in integers; a text that isn't a whole number of base units, or has
// another dimension's unit, is refused with the units that would do.  Sizes are binary
// (KiB, MiB) and rates decimal (GB/s), as the tools that people copy them from print them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/time.h"

namespace faultline {

enum class Dimension : std::uint8_t {
  kSize,       // bytes
  kRate,       // bytes a second
  kTime,       // picoseconds
  kFrequency,  // hertz
};

struct Quantity {
  std::uint64_t value = 0;  // in the dimension's base unit
  std::string problem;      // empty: the text was good
  [[nodiscard]] bool ok() const { return problem.empty(); }
};

[[nodiscard]] Quantity parse_quantity(std::string_view text, Dimension dimension);
[[nodiscard]] std::vector<std::string> units_of(Dimension dimension);

// The shortest exact form: 536870912 -> "512 MiB", 17000000000 -> "17 GB/s".
[[nodiscard]] std::string format_quantity(std::uint64_t value, Dimension dimension);
[[nodiscard]] inline std::string format_quantity(Duration time) {
  return format_quantity(static_cast<std::uint64_t>(time.count_ps()), Dimension::kTime);
}

}  // namespace faultline
