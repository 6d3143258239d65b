// SPDX-License-Identifier: Apache-2.0
//
// faultline show: one machine with all that decides its results, and where each number is
// from; one kernel version with every switch.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "arch_profiles/input_error.h"
#include "arch_profiles/profile_loader.h"
#include "kernel_model/presets/presets.h"
#include "scenarios/cli/commands.h"

namespace faultline::cli {
namespace {

void show_profile(const std::string& name) {
  const arch::Profile profile = arch::load_profile(name, {"faultline show profile", 0, 0});
  std::fputs(arch::describe(profile).c_str(), stdout);
}

void show_kernel(const std::string& name) {
  const std::vector<std::string> presets = kernel::list_presets();
  if (std::find(presets.begin(), presets.end(), name) == presets.end())
    throw InputError({{"faultline show kernel", 0, 0},
                      "",
                      "unknown kernel \"" + name + "\"",
                      did_you_mean(name, presets),
                      presets});
  fmt::print("{}: {}\n\n", name, kernel::preset_title(name));
  for (const kernel::SwitchValue& s : kernel::describe(kernel::load_preset(name)))
    fmt::print("{:<42} {:<14} {}\n", s.key, s.value, s.about);
}

struct Showable {
  std::string what;
  std::vector<std::string> (*names)();
  void (*show)(const std::string& name);
};

}  // namespace

int show_command(const std::vector<std::string>& args) {
  const std::vector<Showable> all{{"profile", arch::list_profiles, show_profile},
                                  {"kernel", kernel::list_presets, show_kernel}};
  const std::string what = args.empty() ? "" : args[0];
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Showable& s) { return s.what == what; });
  if (found == all.end()) {
    std::vector<std::string> accepted;
    for (const Showable& s : all) accepted.push_back(s.what);
    throw InputError({{"faultline show", 0, 0},
                      "",
                      what.empty() ? "say what to show" : "can't show \"" + what + "\"",
                      did_you_mean(what, accepted),
                      accepted});
  }
  if (args.size() != 2)
    throw InputError({{"faultline show " + what, 0, 0},
                      "",
                      "give the name of one " + what,
                      "",
                      found->names()});
  found->show(args[1]);
  return 0;
}

}  // namespace faultline::cli
