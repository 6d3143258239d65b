// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/execute.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "scenarios/run/explain.h"
#include "sim/check.h"

namespace faultline::scenario {
namespace {

// Runs all variants; each host thread takes the next one that nobody has.
std::vector<VariantRun> run_all(const std::vector<const RunSpec*>& specs,
                                const RunChoice& choice, ProgressList& progress) {
  std::vector<VariantRun> runs(specs.size());
  std::atomic<std::size_t> next{0};
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < specs.size(); i = next++)
      runs[i] = run_variant(*specs[i], progress[i], KeepProc{choice.proc});
  };
  const std::size_t helpers = std::min<std::size_t>(choice.jobs, specs.size()) - 1;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back(take_turns);
  take_turns();
  threads.clear();
  return runs;
}

void check_expectations(const std::vector<const RunSpec*>& specs, Result& result) {
  for (std::size_t i = 0; i < specs.size(); ++i)
    for (const Condition& condition : specs[i]->expect)
      if (auto held = check(condition, result, result.variants[i]))
        result.variants[i].expectations.push_back(std::move(*held));
}

std::optional<Rate> rate_of(const RunSpec& spec, const VariantResult& result) {
  const workloads::CountDecl* const count = spec.workload.decl().rate();
  const Metric* const metric = count != nullptr ? result.metric(count->name) : nullptr;
  if (metric == nullptr) return std::nullopt;
  return Rate{metric->name, metric->value};
}

std::vector<std::string> verdict(const std::vector<const RunSpec*>& specs,
                                 const std::vector<VariantRun>& runs,
                                 const Result& result) {
  std::vector<NamedEvidence> named;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const VariantResult& variant = result.variants[i];
    named.push_back({variant.name, &runs[i].evidence, rate_of(*specs[i], variant)});
  }
  return compare_variants(named);
}

}  // namespace

std::vector<const RunSpec*> chosen_variants(const Scenario& scenario,
                                            const RunChoice& choice) {
  std::vector<std::string> names;
  for (const RunSpec& v : scenario.variants) names.push_back(v.name);
  for (const std::string& wanted : choice.variants)
    if (std::find(names.begin(), names.end(), wanted) == names.end())
      throw InputError({{"--variant", 0, 0},
                        "",
                        "no variant \"" + wanted + "\" in " + scenario.name,
                        did_you_mean(wanted, names),
                        names});
  std::vector<const RunSpec*> chosen;
  for (const RunSpec& v : scenario.variants)
    if (choice.variants.empty() || std::find(choice.variants.begin(), choice.variants.end(),
                                             v.name) != choice.variants.end())
      chosen.push_back(&v);
  return chosen;
}

Result run_scenario(const Scenario& scenario, const RunChoice& choice,
                    ProgressList& progress) {
  const std::vector<const RunSpec*> specs = chosen_variants(scenario, choice);
  FAULTLINE_CHECK_EQ(progress.size(), specs.size());
  const std::vector<VariantRun> runs = run_all(specs, choice, progress);

  Result result;
  result.scenario = scenario.name;
  result.title = scenario.title;
  result.columns = scenario.columns;
  result.source = scenario.source;
  result.seed = scenario.seed;
  for (const VariantRun& r : runs) result.variants.push_back(r.result);
  check_expectations(specs, result);
  result.verdict = verdict(specs, runs, result);
  return result;
}

}  // namespace faultline::scenario
