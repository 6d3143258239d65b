// SPDX-License-Identifier: Apache-2.0
//
// Data files that are part of the binary (embed.cmake writes the definitions).
#pragma once

#include <span>
#include <string_view>

namespace faultline {

struct EmbeddedFile {
  std::string_view name;  // without folder and ending: "arm64-64k"
  std::string_view text;
};

[[nodiscard]] std::span<const EmbeddedFile> embedded_profiles();

}  // namespace faultline
