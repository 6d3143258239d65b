// SPDX-License-Identifier: Apache-2.0
//
// The preset files as they lie in the binary (embed.cmake writes the definition), oldest
// kernel first.
#pragma once

#include <span>

#include "arch_profiles/embedded.h"

namespace faultline::kernel {

[[nodiscard]] std::span<const EmbeddedFile> embedded_presets();

}  // namespace faultline::kernel
