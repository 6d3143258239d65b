// SPDX-License-Identifier: Apache-2.0
//
// The table of all switches: which key stands for which field of KernelConfig, what it
// accepts, how its value is printed.  A new field of KernelConfig gets one line in
// switches.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "arch_profiles/document.h"
#include "kernel_model/config.h"

namespace faultline::kernel {

struct Switch {
  std::string_view key;    // "locks.rwsem"
  std::string_view about;  // one phrase
  // Throws InputError that calls the switch `name`.
  void (*set)(KernelConfig& config, const Node& value, std::string_view name);
  std::string (*get)(const KernelConfig& config);
};

// Sorted by key.
[[nodiscard]] std::span<const Switch> all_switches();

}  // namespace faultline::kernel
