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

#include "arch_profiles/profile.h"
#include "scenarios/workloads/workload.h"

namespace faultline::scenario {

struct MetricDecl {
  std::string_view name;
  std::string_view help;
};

// Times, then counts of the process (and of the TLBs, see below), then the counters of
// /proc/vmstat.
[[nodiscard]] std::span<const MetricDecl> machine_metrics();

// Those of the TLBs, where the machine's are known; perf's events only where the CPU has
// them.  A run has them if the TLBs are modelled; a scenario may name them anyway, so that
// its TLBs can be switched off.
[[nodiscard]] std::vector<MetricDecl> tlb_metrics(const arch::Profile& machine);

// Those of the last-level data caches, where they are modelled.
[[nodiscard]] std::vector<MetricDecl> llc_metrics(const arch::Profile& machine);

// All that a run of `workload` on that machine yields.
[[nodiscard]] std::vector<std::string> metric_names(const workloads::WorkloadDecl& workload,
                                                    const arch::Profile& machine);

}  // namespace faultline::scenario
