// SPDX-License-Identifier: Apache-2.0
//
// The costs of a machine with their sources, as results and `faultline show profile` state
// them.
#pragma once

#include <vector>

#include "arch_profiles/profile.h"
#include "scenarios/run/result.h"

namespace faultline::scenario {

// One a cost, in the order of arch_profiles/costs.h.
[[nodiscard]] std::vector<CostNote> cost_notes(const arch::Profile& profile);

}  // namespace faultline::scenario
