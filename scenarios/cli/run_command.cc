// SPDX-License-Identifier: Apache-2.0
//
// faultline run: everything is read and checked before anything runs, and files are written
// when all is known.
#include <cstdio>
#include <filesystem>

#include "arch_profiles/input_error.h"
#include "scenarios/cli/commands.h"
#include "scenarios/cli/options.h"
#include "scenarios/cli/progress.h"
#include "scenarios/library/library.h"
#include "scenarios/report/json.h"
#include "scenarios/report/text.h"
#include "scenarios/report/write_file.h"
#include "scenarios/run/execute.h"

namespace faultline::cli {
namespace {

scenario::Scenario load_named(const RunOptions& options) {
  if (std::filesystem::exists(options.file))
    return scenario::load_scenario_file(options.file, options.overrides);
  if (const EmbeddedFile* file = find_library_scenario(options.file))
    return scenario::load_scenario(file->text, std::string(file->name) + ".toml",
                                   options.overrides);
  const std::vector<std::string> names = library_scenario_names();
  throw InputError({{options.file, 0, 0},
                    "",
                    "no such file, and no scenario of that name in the library",
                    did_you_mean(options.file, names),
                    names});
}

scenario::Scenario load(const RunOptions& options) {
  scenario::Scenario s = load_named(options);
  if (!options.seed) return s;
  s.seed = *options.seed;
  for (scenario::RunSpec& v : s.variants) v.seed = *options.seed;
  return s;
}

void check_outputs(const RunOptions& o) {
  if (!o.json.empty()) report::check_writable(o.json, "--json");
  if (!o.csv.empty()) report::check_writable(o.csv, "--csv");
  if (!o.folded.empty()) report::make_folder(o.folded, "--folded");
}

void write_outputs(const RunOptions& o, const scenario::Result& result) {
  if (!o.json.empty()) report::write_file(o.json, report::json(result), "--json");
  if (!o.csv.empty()) report::write_file(o.csv, report::csv(result), "--csv");
  if (!o.folded.empty())
    for (const scenario::VariantResult& v : result.variants)
      report::write_file(o.folded + "/" + v.name + ".folded", report::folded(v),
                         "--folded");
  const bool stdout_is_taken = o.json == "-" || o.csv == "-";
  if (!o.quiet && !stdout_is_taken) report::write_file("-", report::text(result), "stdout");
}

}  // namespace

int run_command(const std::vector<std::string>& args) {
  const RunOptions options = parse_run_options(args);
  if (options.help) {
    std::fputs(run_help().c_str(), stdout);
    return 0;
  }
  const scenario::Scenario scenario = load(options);
  const scenario::RunChoice choice{options.variants, options.jobs};
  scenario::ProgressList progress(scenario::chosen_variants(scenario, choice).size());
  check_outputs(options);
  const scenario::Result result = [&] {
    const ProgressBar bar(progress);
    return scenario::run_scenario(scenario, choice, progress);
  }();
  write_outputs(options, result);
  return result.expectations_met() ? 0 : 1;
}

}  // namespace faultline::cli
