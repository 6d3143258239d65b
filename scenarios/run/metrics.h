// SPDX-License-Identifier: Apache-2.0
//
// The metrics that every run has: their names, in the order of output.  A scenario's
// [expect] and
// [[published]] may name one of these or one that its workload declares
// (WorkloadDecl::counts).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/workloads/workload.h"

namespace faultline::scenario {

struct MetricDecl {
  std::string_view name;
  std::string_view help;
};

// Times, then counts of the process, then the counters of /proc/vmstat.
[[nodiscard]] std::span<const MetricDecl> machine_metrics();

// All that a run of `workload` yields.
[[nodiscard]] std::vector<std::string> metric_names(
    const workloads::WorkloadDecl& workload);

}  // namespace faultline::scenario
