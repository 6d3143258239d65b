// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/bind.h"

namespace faultline::scenario {

MachineShape machine_shape(const arch::Profile& profile) {
  MachineShape shape{.node_of_cpu = profile.node_of_cpu,
                     .node_distance = profile.node_distance};
  shape.threads_per_core = static_cast<int>(profile.smt);
  shape.smt_gain = static_cast<int>(profile.smt_gain);
  for (const arch::IdleState& state : profile.idle_states)
    shape.idle_states.push_back({state.exit_latency, state.target_residency});
  return shape;
}

SchedCosts sched_costs(const arch::Profile& profile) {
  SchedCosts c;
  c.timer_slack = profile.costs.timer_slack;
  c.context_switch = profile.costs.context_switch;
  c.wakeup = profile.costs.wakeup;
  c.wakeup_latency = profile.costs.wakeup_latency;
  return c;
}

}  // namespace faultline::scenario
