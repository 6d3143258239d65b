// SPDX-License-Identifier: Apache-2.0
//
// faultline show: one machine with all that decides its results, and where each number is
// from.
#include <cstdio>

#include "arch_profiles/input_error.h"
#include "arch_profiles/profile_loader.h"
#include "scenarios/cli/commands.h"

namespace faultline::cli {
namespace {

void show_profile(const std::string& name) {
  const arch::Profile profile = arch::load_profile(name, {"faultline show profile", 0, 0});
  std::fputs(arch::describe(profile).c_str(), stdout);
}

}  // namespace

int show_command(const std::vector<std::string>& args) {
  const std::string what = args.empty() ? "" : args[0];
  if (what != "profile") {
    const std::vector<std::string> accepted{"profile"};
    throw InputError({{"faultline show", 0, 0},
                      "",
                      what.empty() ? "say what to show" : "can't show \"" + what + "\"",
                      did_you_mean(what, accepted),
                      accepted});
  }
  if (args.size() != 2)
    throw InputError({{"faultline show profile", 0, 0},
                      "",
                      "give the name of one profile",
                      "",
                      arch::list_profiles()});
  show_profile(args[1]);
  return 0;
}

}  // namespace faultline::cli
