// SPDX-License-Identifier: Apache-2.0
//
// From a machine's profile to what the engine wants to know of it.
#pragma once

#include "arch_profiles/profile.h"
#include "sim/engine.h"

namespace faultline::scenario {

[[nodiscard]] MachineShape machine_shape(const arch::Profile& profile);
[[nodiscard]] SchedCosts sched_costs(const arch::Profile& profile);

}  // namespace faultline::scenario
