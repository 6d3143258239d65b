// SPDX-License-Identifier: Apache-2.0
//
// A variant's workload on the machine at hand: the real kernel, and the same allocator
// source with the variant's release and tunables.
//
// What the scenario says of machine and kernel is not applied: the machine at hand is what
// it is, and its settings are not touched.
#pragma once

#include <string>

#include "scenarios/run/result.h"
#include "scenarios/run/scenario.h"

namespace faultline::scenario {

// Runs in a child process of its own.  The metrics are those that getrusage and the clock
// give (elapsed_s, user_s, sys_s, sys_per_elapsed, cpus_busy, minor-faults, major-faults,
// max_rss_kib, context-switches) and the workload's counts.  A child that dies is a failure
// of the result.
[[nodiscard]] VariantResult run_natively(const RunSpec& spec);

// "Linux 6.18.5 x86_64, 2 CPUs, 4096-byte pages, THP madvise".
[[nodiscard]] std::string this_machine();

}  // namespace faultline::scenario
