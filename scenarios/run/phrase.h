// SPDX-License-Identifier: Apache-2.0
//
// Numbers as sentences need them: few digits, always the same ones.
#pragma once

#include <string>

#include "scenarios/run/decimal.h"
#include "scenarios/run/evidence.h"

namespace faultline::scenario {

// "1,467 s", "13.95 s", "0.298 s", "41 us": four digits at most.
[[nodiscard]] std::string say_seconds(Duration d);
// "94.2 %"; "< 0.1 %" for what is there but small.
[[nodiscard]] std::string say_percent(Duration part, Duration whole);
// "3.07": part / whole with up to two decimals.
[[nodiscard]] std::string say_ratio(Duration part, Duration whole);
// Four digits of any value: "478.1", "32,768".
[[nodiscard]] std::string say_value(Decimal value);
// How `now` differs from `before`: "unchanged", "+3.1 %", "-48 %", "114 times less".
[[nodiscard]] std::string say_change(Decimal before, Decimal now);
// The innermost `count` functions, innermost first: "clear_page < clear_huge_page < …".
[[nodiscard]] std::string say_place(const Frames& frames, std::size_t count);

}  // namespace faultline::scenario
