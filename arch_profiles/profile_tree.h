// SPDX-License-Identifier: Apache-2.0
//
// The steps from profile files to a Profile, as the loader composes them:
// overlay the trees, read the tree, check what was read.
#pragma once

#include <string>
#include <string_view>

#include "arch_profiles/document.h"
#include "arch_profiles/profile.h"

namespace faultline::arch {

// How places in the built-in profiles begin: "built-in arm64-64k.toml:7:11".
inline constexpr std::string_view kBuiltIn = "built-in ";

// Lays `top` over `bottom`: tables key by key, anything else replaced.  A cost is replaced
// whole, so that a new value never stands beside the old value's source.
void overlay(Node& bottom, const Node& top);

// Refuses keys that no profile has.  `where`: "[machine]" in a scenario, else "the
// profile".
void check_profile_keys(const Node& tree, std::string_view where);

// Reads a tree that has all that a profile needs; InputError at the node that is wrong.
[[nodiscard]] Profile build_profile(const Node& tree, std::string name);

// Refuses a machine that can't exist.  Blames the node of `tree` that says so.
void check_profile(const Profile& profile, const Node& tree);

}  // namespace faultline::arch
