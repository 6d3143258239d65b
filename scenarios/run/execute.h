// SPDX-License-Identifier: Apache-2.0
//
// Runs scenarios.  Each variant has its own engine, kernel, process and allocator, so that
// variants can run at once on several host threads; the result is the same.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "scenarios/run/evidence.h"
#include "scenarios/run/result.h"
#include "scenarios/run/scenario.h"
#include "scenarios/workloads/workload.h"

namespace faultline::scenario {

struct VariantRun {
  VariantResult result;  // without expectations: those may need other variants
  Evidence evidence;
};
enum class KeepProc : bool { kNo, kYes };
[[nodiscard]] VariantRun run_variant(const RunSpec& spec, workloads::Progress& progress,
                                     KeepProc proc = KeepProc::kNo);

struct RunChoice {
  std::vector<std::string> variants;  // empty: all
  unsigned jobs = 1;                  // host threads
  bool proc = false;                  // keep the texts of /proc (VariantResult::proc)
};

// One entry a variant that will run, in their order; watched by a progress bar.
using ProgressList = std::deque<workloads::Progress>;

// Precondition: the names in choice.variants are of the scenario; progress has one entry
// for each variant that runs.
[[nodiscard]] Result run_scenario(const Scenario& scenario, const RunChoice& choice,
                                  ProgressList& progress);

// The variants that `choice` picks.  Throws InputError for a name that the scenario doesn't
// have.
[[nodiscard]] std::vector<const RunSpec*> chosen_variants(const Scenario& scenario,
                                                          const RunChoice& choice);

}  // namespace faultline::scenario
