// SPDX-License-Identifier: Apache-2.0
//
// What /proc/PID/smaps says of the window.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/outcome.h"

namespace faultline::oracle {

// The VMAs that reach into the window, clipped to it, with the flags that the model knows.
std::vector<VmaState> parse_smaps(const std::string& text);

}  // namespace faultline::oracle
