// SPDX-License-Identifier: Apache-2.0
//
// The command line.  A wrong word gets the nearest right one, like a wrong key in a file
// does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/run/scenario.h"

namespace faultline::cli {

struct RunOptions {
  std::string file;                   // a path or the name of a scenario of the library
  std::vector<std::string> variants;  // empty: all
  std::vector<scenario::Override> overrides;
  std::optional<std::uint64_t> seed;
  std::string json, csv, folded, proc;  // empty: not asked for
  bool quiet = false;
  unsigned jobs = 1;
  bool help = false;
};

// `args`: what follows "run".  Throws InputError.
[[nodiscard]] RunOptions parse_run_options(const std::vector<std::string>& args);
[[nodiscard]] std::string run_help();

}  // namespace faultline::cli
