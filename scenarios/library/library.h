// SPDX-License-Identifier: Apache-2.0
//
// The scenarios that come with Faultline: library/*/*.toml, part of the binary.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/embedded.h"

namespace faultline {

[[nodiscard]] std::span<const EmbeddedFile> embedded_scenarios();

// By name, as `faultline list scenarios` shows it; null if there is none.
[[nodiscard]] inline const EmbeddedFile* find_library_scenario(std::string_view name) {
  for (const EmbeddedFile& file : embedded_scenarios())
    if (file.name == name) return &file;
  return nullptr;
}

[[nodiscard]] inline std::vector<std::string> library_scenario_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_scenarios()) names.emplace_back(file.name);
  return names;
}

}  // namespace faultline
