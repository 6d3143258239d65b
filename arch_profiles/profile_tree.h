// SPDX-License-Identifier: Apache-2.0
//
// The steps from a profile's tree to a Profile, as the loader composes them: check its
// keys, read it, check what was read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "arch_profiles/document.h"
#include "arch_profiles/profile.h"

namespace faultline::arch {

// How places in the built-in profiles begin: "built-in arm64-64k.toml:7:11".
inline constexpr std::string_view kBuiltIn = "built-in ";

// Refuses keys that the format doesn't have.  kMachine: a scenario's [machine], which names
// its profile instead of bases.
enum class Format : std::uint8_t { kProfile, kMachine };
void check_profile_keys(const Node& tree, Format format);

// Reads a tree that has all that a profile needs; InputError at the node that is wrong.
[[nodiscard]] Profile build_profile(const Node& tree, std::string name);

// Its part for [llc].
void read_llc(const Node& tree, Profile& profile);
// smt, smt_gain, [[idle_state]].
void read_cores(const Node& tree, Profile& profile);
// The number or text of a cost, which is a table with its source or, in a scenario, the
// value alone.
[[nodiscard]] const Node& cost_value(const Node& cost, std::string_view key,
                                     CostSource& source);

// Refuses a machine that can't exist.  Blames the node of `tree` that says so.
void check_profile(const Profile& profile, const Node& tree);

}  // namespace faultline::arch
