// SPDX-License-Identifier: Apache-2.0
//
// Kernel versions as tables of switches: presets/*.toml, part of the binary.
//
// A scenario names a preset and may then turn single switches by their dotted keys:
// "locks.rwsem", "transparent_hugepage.enabled" … (the keys that config.h gives).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/document.h"
#include "kernel_model/config.h"

namespace faultline::kernel {

// Names of the presets, oldest kernel first.
[[nodiscard]] std::vector<std::string> list_presets();
// Precondition: `name` is one of list_presets().
[[nodiscard]] KernelConfig load_preset(std::string_view name);
[[nodiscard]] std::string preset_title(std::string_view name);  // the same precondition

// The dotted keys of all switches, sorted.
[[nodiscard]] const std::vector<std::string>& switch_keys();
// Turns one switch; InputError at value.place if the value isn't accepted.
// Precondition: `key` is one of switch_keys().  Messages name it "kernel." + key.
void set_switch(KernelConfig& config, std::string_view key, const Node& value);

// Every switch with its value as it would be written, in the order of switch_keys().
struct SwitchValue {
  std::string key, value, about;
};
[[nodiscard]] std::vector<SwitchValue> describe(const KernelConfig& config);

}  // namespace faultline::kernel
