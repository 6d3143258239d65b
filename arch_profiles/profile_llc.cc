// SPDX-License-Identifier: Apache-2.0
//
// The last-level cache of a profile: [llc].
#include "arch_profiles/profile_tree.h"

namespace faultline::arch {

void read_llc(const Node& tree, Profile& profile) {
  const Node* const given = tree.find("llc");
  if (given == nullptr) return;
  const Node& table = as_table(*given, "llc");
  const auto number = [&](const char* key, unsigned fallback, std::int64_t max) {
    const Node* const node = table.find(key);
    if (node == nullptr) return fallback;
    return static_cast<unsigned>(as_integer(*node, "llc." + std::string(key), 1, max));
  };
  constexpr std::int64_t kMostWays = 64, kMostSlices = 256;
  Llc& llc = profile.llc;
  llc.bytes = as_size(require(table, "size", "[llc]"), "llc.size");
  llc.ways = number("ways", llc.ways, kMostWays);
  llc.slices = number("slices", llc.slices, kMostSlices);
  static const std::vector<std::string> placements = {"address", "random"};
  if (const Node* placement = table.find("placement"))
    llc.placement =
        static_cast<Llc::Placement>(as_choice(*placement, "llc.placement", placements));
  if (const Node* threshold = table.find("non_temporal_threshold"))
    llc.non_temporal_threshold = as_size(*threshold, "llc.non_temporal_threshold");
}

}  // namespace faultline::arch
