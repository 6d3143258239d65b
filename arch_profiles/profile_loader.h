// SPDX-License-Identifier: Apache-2.0
//
// Profiles from TOML.
//
// The profiles of data/*.toml are part of the binary; a file of the user's is read by path.
// A profile may start from another (`base = "arm64-64k"`): tables are overlaid key by key,
// anything else is replaced.  A scenario's [machine] table is the same thing, a nameless
// profile on top of the one it names, so that it has the same keys and passes the same
// checks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/document.h"
#include "arch_profiles/profile.h"

namespace faultline::arch {

// Names of the built-in profiles, sorted.
[[nodiscard]] std::vector<std::string> list_profiles();

// `name`: of a built-in profile, or a path that ends in ".toml".  `asked_at` is blamed if
// there is no such profile; paths are relative to the folder of asked_at.file, if that is a
// file.
[[nodiscard]] Profile load_profile(std::string_view name, const Place& asked_at = {});

// Refuses keys that a scenario's [machine] doesn't have.
void check_machine_keys(const Node& machine);

// A profile with the settings of `machine` laid over it; its key "profile" was read by the
// caller.
[[nodiscard]] Profile load_profile(std::string_view name, const Node& machine,
                                   const Place& asked_at);

// The keys of a profile's tables, dotted and sorted: "costs.clear_rate", "cpus" …
[[nodiscard]] const std::vector<std::string>& profile_keys();

// For `faultline show profile NAME`.
[[nodiscard]] std::string describe(const Profile& profile);

}  // namespace faultline::arch
