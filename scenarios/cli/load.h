// SPDX-License-Identifier: Apache-2.0
//
// The scenario that the command line names: a file, or one of the library.
#pragma once

#include "scenarios/cli/options.h"
#include "scenarios/run/scenario.h"

namespace faultline::cli {

// With the overrides and the seed of the command line.  Throws InputError.
[[nodiscard]] scenario::Scenario load_named(const RunOptions& options);

}  // namespace faultline::cli
