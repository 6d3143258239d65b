// SPDX-License-Identifier: Apache-2.0
//
// A scenario of one variant, from its text to its result.
#pragma once

#include <string>
#include <vector>

#include "scenarios/run/execute.h"

namespace faultline::scenario {

inline Result run_text(const std::string& text, const std::vector<Override>& overrides = {},
                       const RunChoice& choice = {}) {
  ProgressList progress(1);
  return run_scenario(load_scenario(text, "t.toml", overrides), choice, progress);
}

}  // namespace faultline::scenario
