// SPDX-License-Identifier: Apache-2.0
//
// faultline native: the workload of a scenario on the machine at hand, in the table of
// `faultline run`, so that a prediction can be held against a measurement.
#include <cstdio>

#include "scenarios/cli/commands.h"
#include "scenarios/cli/load.h"
#include "scenarios/cli/options.h"
#include "scenarios/report/json.h"
#include "scenarios/report/text.h"
#include "scenarios/report/write_file.h"
#include "scenarios/run/execute.h"
#include "scenarios/run/native_run.h"

namespace faultline::cli {
namespace {

constexpr const char* kHelp =
    "usage: faultline native FILE [options]\n"
    "\n"
    "  Runs the scenario's workload with its allocator on this machine's own kernel.  "
    "Machine and\n"
    "  kernel of the scenario are not applied and no setting of this machine is changed.\n"
    "  Options as of faultline run: --variant, --set (allocator and workload), --json, "
    "--csv,\n"
    "  --quiet.\n";

}  // namespace

int native_command(const std::vector<std::string>& args) {
  const RunOptions options = parse_run_options(args);
  if (options.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const scenario::Scenario scenario = load_named(options);
  const scenario::RunChoice choice{options.variants, 1};
  if (!options.json.empty()) report::check_writable(options.json, "--json");
  if (!options.csv.empty()) report::check_writable(options.csv, "--csv");
  scenario::Result result;
  result.scenario = scenario.name;
  result.title = scenario.title;
  result.source = "measured here: " + scenario::this_machine();
  result.seed = scenario.seed;
  for (const scenario::RunSpec* spec : scenario::chosen_variants(scenario, choice))
    result.variants.push_back(scenario::run_natively(*spec));
  if (!options.json.empty())
    report::write_file(options.json, report::json(result), "--json");
  if (!options.csv.empty()) report::write_file(options.csv, report::csv(result), "--csv");
  if (!options.quiet && options.json != "-" && options.csv != "-")
    report::write_file("-", report::measured_text(result), "stdout");
  return result.expectations_met() ? 0 : 1;
}

}  // namespace faultline::cli
