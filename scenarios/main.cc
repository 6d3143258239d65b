// SPDX-License-Identifier: Apache-2.0
//
// The command `faultline`.  The only place where the user's mistakes are caught: one
// message on stderr, exit status 2.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "arch_profiles/input_error.h"
#include "scenarios/cli/commands.h"

namespace faultline::cli {
namespace {

constexpr const char* kHelp =
    "usage: faultline COMMAND [arguments]\n"
    "\n"
    "  run FILE [options]   run a scenario; --help lists the options\n"
    "  native FILE          run its workload on this machine's own kernel, with the same "
    "allocator\n"
    "  list WHAT            scenarios, profiles, kernels or workloads\n"
    "  show profile NAME    a machine: page sizes, memory, costs and their sources\n"
    "  show kernel NAME     a kernel version: every switch with its value\n"
    "  --help, --version\n";

int dispatch(const std::vector<std::string>& args) {
  const std::vector<std::string> rest(args.empty() ? args.end() : args.begin() + 1,
                                      args.end());
  const std::string command = args.empty() ? "" : args[0];
  if (command == "run") return run_command(rest);
  if (command == "native") return native_command(rest);
  if (command == "list") return list_command(rest);
  if (command == "show") return show_command(rest);
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (command == "--version") {
    std::puts("faultline " FAULTLINE_VERSION);
    return 0;
  }
  const std::vector<std::string> accepted{"run",  "native", "list",
                                          "show", "--help", "--version"};
  throw InputError(
      {{"faultline", 0, 0},
       "",
       command.empty() ? "what shall it do?" : "no command \"" + command + "\"",
       did_you_mean(command, accepted),
       accepted});
}

}  // namespace
}  // namespace faultline::cli

int main(int argc, char** argv) {
  try {
    return faultline::cli::dispatch({argv + 1, argv + argc});
  } catch (const faultline::InputError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
