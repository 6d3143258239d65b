// SPDX-License-Identifier: Apache-2.0
//
// faultline run: everything is read and checked before anything runs, and files are written
// when all is known.
#include <cstdio>
#include <filesystem>

#include "scenarios/cli/commands.h"
#include "scenarios/cli/load.h"
#include "scenarios/cli/options.h"
#include "scenarios/cli/progress.h"
#include "scenarios/report/json.h"
#include "scenarios/report/text.h"
#include "scenarios/report/write_file.h"
#include "scenarios/run/execute.h"

namespace faultline::cli {
namespace {

void check_outputs(const RunOptions& o) {
  if (!o.json.empty()) report::check_writable(o.json, "--json");
  if (!o.csv.empty()) report::check_writable(o.csv, "--csv");
  if (!o.folded.empty()) report::make_folder(o.folded, "--folded");
  if (!o.proc.empty()) report::make_folder(o.proc, "--proc");
}

void write_proc(const std::string& folder, const scenario::VariantResult& variant) {
  for (const auto& [path, text] : variant.proc) {
    const std::string file = folder + "/" + variant.name + "/" + path;
    report::make_folder(std::filesystem::path(file).parent_path().string(), "--proc");
    report::write_file(file, text, "--proc");
  }
}

void write_outputs(const RunOptions& o, const scenario::Result& result) {
  if (!o.json.empty()) report::write_file(o.json, report::json(result), "--json");
  if (!o.csv.empty()) report::write_file(o.csv, report::csv(result), "--csv");
  if (!o.folded.empty())
    for (const scenario::VariantResult& v : result.variants)
      report::write_file(o.folded + "/" + v.name + ".folded", report::folded(v),
                         "--folded");
  if (!o.proc.empty())
    for (const scenario::VariantResult& v : result.variants) write_proc(o.proc, v);
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
  const scenario::Scenario scenario = load_named(options);
  const scenario::RunChoice choice{options.variants, options.jobs, !options.proc.empty()};
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
