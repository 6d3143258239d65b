// SPDX-License-Identifier: Apache-2.0
//
// faultline show: one machine with all that decides its results, and where each number is from.
#include <cstdio>

#include "arch_profiles/input_error.h"
#include "arch_profiles/profile_loader.h"
#include "arch_profiles/units.h"
#include "scenarios/cli/commands.h"
#include "scenarios/report/table.h"
#include "scenarios/run/cost_notes.h"

namespace faultline::cli {
namespace {

using report::Table;
constexpr auto kLeft = Table::Align::kLeft;

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

std::string size_text(std::uint64_t bytes) { return format_quantity(bytes, Dimension::kSize); }

void show_geometry(const arch::Geometry& g) {
  print("pages: " + size_text(g.page_size()) + ", huge pages " +
        (g.has_thp ? size_text(g.pmd_size()) : "none") + "; largest free block " +
        size_text(g.page_size() << g.max_order) + "; user addresses below 2^" +
        std::to_string(g.va_bits) + "\n");
}

void show_memory(const arch::Profile& p) {
  print("processors: " + std::to_string(p.cpus) + " CPUs at " +
        format_quantity(p.cpu_hz, Dimension::kFrequency) + "\n");
  Table table({{"node", kLeft}, {"CPUs"}, {"memory"}, {"free"}, {"distances", kLeft}});
  for (std::size_t n = 0; n < p.nodes.size(); ++n) {
    std::size_t cpus = 0;
    for (const int node : p.node_of_cpu) cpus += static_cast<std::size_t>(node) == n ? 1 : 0;
    std::string distances;
    if (n < p.node_distance.size())
      for (const int d : p.node_distance[n]) distances += (distances.empty() ? "" : " ") + std::to_string(d);
    table.add({std::to_string(n), std::to_string(cpus), size_text(p.nodes[n].memory_bytes),
               size_text(p.nodes[n].free_bytes), distances});
  }
  print(table.text(2) + "\n");
}

void show_profile(const std::string& name) {
  const arch::Profile p = arch::load_profile(name, {"faultline show profile", 0, 0});
  print(p.name + ": " + p.title + "\n");
  if (!p.source.empty()) print(report::wrap(p.source, "source: ", 110));
  show_geometry(p.geometry);
  show_memory(p);
  Table costs({{"cost", kLeft}, {"value"}, {"known by", kLeft}, {"source", kLeft}});
  for (const scenario::CostNote& c : scenario::cost_notes(p))
    costs.add({c.cost, c.value, c.confidence, c.source});
  print(costs.text());
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
    throw InputError({{"faultline show profile", 0, 0}, "", "give the name of one profile", "",
                      arch::list_profiles()});
  show_profile(args[1]);
  return 0;
}

}  // namespace faultline::cli
