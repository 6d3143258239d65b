// SPDX-License-Identifier: Apache-2.0
//
// faultline list: what there is to choose from.
#include <cstdio>

#include "arch_profiles/input_error.h"
#include "arch_profiles/profile_loader.h"
#include "arch_profiles/units.h"
#include "kernel_model/presets/presets.h"
#include "scenarios/cli/commands.h"
#include "scenarios/library/library.h"
#include "scenarios/report/table.h"
#include "scenarios/run/scenario.h"
#include "scenarios/workloads/workload.h"

namespace faultline::cli {
namespace {

using report::Table;
constexpr auto kLeft = Table::Align::kLeft;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
}

void list_scenarios() {
  Table table({{"scenario", kLeft}, {"title", kLeft}});
  for (const EmbeddedFile& file : embedded_scenarios()) {
    const std::string name(file.name);
    table.add({name, scenario::load_scenario(file.text, name + ".toml").title});
  }
  print(table.text());
}

void list_profiles() {
  Table table({{"profile", kLeft}, {"title", kLeft}});
  for (const std::string& name : arch::list_profiles())
    table.add({name, arch::load_profile(name).title});
  print(table.text());
}

void list_kernels() {
  for (const std::string& name : kernel::list_presets()) print(name + "\n");
  print("\nswitches, each for itself (--set kernel.SWITCH=VALUE):\n");
  for (const std::string& key : kernel::switch_keys()) print("  " + key + "\n");
}

std::string default_of(const workloads::ParamDecl& p) {
  if (p.type == workloads::ParamType::kOps) return "none";
  if (p.type == workloads::ParamType::kCount) return std::to_string(p.default_value);
  if (p.type == workloads::ParamType::kBytes)
    return format_quantity(static_cast<std::uint64_t>(p.default_value), Dimension::kSize);
  return std::string(p.choices[static_cast<std::size_t>(p.default_value)]);
}

void list_workloads() {
  for (const workloads::WorkloadDecl& w : workloads::all()) {
    print(std::string(w.name) + ": " + std::string(w.summary) + "\n");
    Table table(
        {{"parameter", kLeft}, {"default", Table::Align::kRight}, {"what it is", kLeft}});
    for (const workloads::ParamDecl& p : w.params)
      table.add({std::string(p.name), default_of(p), std::string(p.help)});
    print(table.text(2) + "\n");
  }
}

}  // namespace

int list_command(const std::vector<std::string>& args) {
  const std::vector<std::string> accepted{"scenarios", "profiles", "kernels", "workloads"};
  const std::string what = args.size() == 1 ? args[0] : "";
  if (what == "scenarios") {
    list_scenarios();
  } else if (what == "profiles") {
    list_profiles();
  } else if (what == "kernels") {
    list_kernels();
  } else if (what == "workloads") {
    list_workloads();
  } else {
    throw InputError(
        {{"faultline list", 0, 0},
         "",
         args.size() == 1 ? "can't list \"" + what + "\"" : "say what to list, in one word",
         did_you_mean(what, accepted),
         accepted});
  }
  return 0;
}

}  // namespace faultline::cli
