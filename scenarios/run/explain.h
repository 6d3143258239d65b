// SPDX-License-Identifier: Apache-2.0
//
// Sentences that say why a run took as long as it did, and what another variant changed.
//
// Every sentence is computed from the evidence of the runs: attribution (what the CPUs did), the
// tasks' states (what kept them from a CPU) and the locks' records of who waited for whom.  Nothing
// here knows any scenario.
#pragma once

#include <string>
#include <vector>

#include "scenarios/run/evidence.h"
#include "scenarios/run/result.h"

namespace faultline::scenario {

// Where the time went and which lock was waited for, held by whom: two to five sentences.
[[nodiscard]] std::vector<std::string> explain(const Evidence& run);

// What sets `run` apart from `base`: one sentence, or none if they are alike.
[[nodiscard]] std::vector<std::string> explain_difference(const Evidence& base,
                                                          const std::string& base_name,
                                                          const Evidence& run);

// One line a variant after the first: how its times and parallelism compare with the first's; then
// which of the changes matter and which don't.
[[nodiscard]] std::vector<std::string> compare_variants(const std::vector<VariantResult>& variants);

// Time in each function itself, over all stacks, longest first (equal ones in order of first use).
struct FunctionTime {
  std::string name;
  Duration busy;
};
[[nodiscard]] std::vector<FunctionTime> time_by_function(const Evidence& run);

}  // namespace faultline::scenario
