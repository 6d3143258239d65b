// SPDX-License-Identifier: Apache-2.0
#include "scenarios/cli/load.h"

#include <filesystem>

#include "arch_profiles/input_error.h"
#include "scenarios/library/library.h"

namespace faultline::cli {
namespace {

scenario::Scenario find(const RunOptions& options) {
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

}  // namespace

scenario::Scenario load_named(const RunOptions& options) {
  scenario::Scenario s = find(options);
  if (!options.seed) return s;
  s.seed = *options.seed;
  for (scenario::RunSpec& v : s.variants) v.seed = *options.seed;
  return s;
}

}  // namespace faultline::cli
