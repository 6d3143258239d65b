// SPDX-License-Identifier: Apache-2.0
//
// Hardware threads and idle states of a profile: smt, smt_gain, [[idle_state]].
#include "arch_profiles/profile_tree.h"

#include <cmath>

namespace faultline::arch {
namespace {

IdleState read_idle_state(const Node& node) {
  static const std::vector<std::string> keys = {"name", "exit_latency", "target_residency",
                                                "source"};
  const auto required = [&](std::string_view key) -> const Node& {
    return require(node, key, "[[idle_state]]");
  };
  check_keys(as_table(node, "idle_state"), "[[idle_state]]", keys);
  return {.name = as_text(required("name"), "idle_state.name"),
          .exit_latency = as_duration(required("exit_latency"), "idle_state.exit_latency"),
          .target_residency =
              as_duration(required("target_residency"), "idle_state.target_residency"),
          .source = as_text(required("source"), "idle_state.source")};
}

// The work of a core's two threads together, of one alone: from 1 (they only take turns) to
// 2 (they share nothing).
void read_gain(const Node& tree, Profile& profile) {
  constexpr double kLeast = 1, kMost = 2, kThousand = 1000;
  const Node* const given = tree.find("smt_gain");
  if (given == nullptr)
    throw InputError({tree.find("smt")->place,
                      "smt",
                      "smt = 2 needs smt_gain, the work of both threads as a multiple of "
                      "one thread's: 1 to 2",
                      {},
                      {}});
  CostSource source;
  const Node& node = cost_value(*given, "smt_gain", source);
  const double gain = as_number(node, "smt_gain");
  if (gain < kLeast || gain > kMost)
    throw InputError({node.place,
                      "smt_gain",
                      "smt_gain must be between 1 and 2, not " + node.text,
                      {},
                      {}});
  source.unit = "of one thread";
  profile.smt_gain = static_cast<unsigned>(std::lround(gain * kThousand));
  profile.cost_sources["smt_gain"] = std::move(source);
}

}  // namespace

void read_cores(const Node& tree, Profile& profile) {
  if (const Node* threads = tree.find("smt"))
    profile.smt = static_cast<unsigned>(as_integer(*threads, "smt", 1, 2));
  if (profile.smt > 1) read_gain(tree, profile);
  if (const Node* states = tree.find("idle_state"))
    for (const Node& state : as_list(*states, "idle_state"))
      profile.idle_states.push_back(read_idle_state(state));
}

}  // namespace faultline::arch
