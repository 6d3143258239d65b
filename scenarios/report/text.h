// SPDX-License-Identifier: Apache-2.0
//
// The result as a person reads it on a terminal: one table of the variants, what was
// published beside what came out, the expectations, and why.
#pragma once

#include <string>

#include "scenarios/run/result.h"

namespace faultline::report {

// What was measured: without prediction and explanation.
[[nodiscard]] std::string measured_text(const scenario::Result& result);
[[nodiscard]] std::string text(const scenario::Result& result);

}  // namespace faultline::report
