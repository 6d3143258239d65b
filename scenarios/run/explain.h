// SPDX-License-Identifier: Apache-2.0
//
// Sentences that say why a run took as long as it did, and what another variant changed.
//
// Every sentence is computed from the evidence of the runs: attribution (what the CPUs
// did), the tasks' states (what kept them from a CPU) and the locks' records of who waited
// for whom.  Nothing here knows any scenario.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/run/decimal.h"
#include "scenarios/run/evidence.h"

namespace faultline::scenario {

// Where the time went and which lock was waited for, held by whom: two to five sentences.
[[nodiscard]] std::vector<std::string> explain(const Evidence& run);

// What a run that lasts as long as it is told to is judged by: "records-per-s".
struct Rate {
  std::string name;
  Decimal value;
};
struct NamedEvidence {
  std::string name;
  const Evidence* run = nullptr;
  std::optional<Rate> rate{};  // none: by the time it took
};

// One sentence a variant after the first: what sets it apart from the first.  Then one that
// sorts them by whether they are faster, slower or alike.  Rates of different names aren't
// compared, but the times.
[[nodiscard]] std::vector<std::string> compare_variants(
    const std::vector<NamedEvidence>& runs);

// Time in each function itself, over all stacks, longest first (equal ones in order of
// first use).
struct FunctionTime {
  std::string name;
  Duration busy;
};
[[nodiscard]] std::vector<FunctionTime> time_by_function(const Evidence& run);

}  // namespace faultline::scenario
