// SPDX-License-Identifier: Apache-2.0
//
// The machine and kernel that a data file was measured on, as profile and configuration.
#pragma once

#include <string>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "sim/engine.h"
#include "tests/real_kernels/rows.h"

namespace faultline::real_kernels {

// The profile of the file with the memory and CPUs of the guest, and the layout of mmprobe
// itself (its data is larger than that of the program whose layout the profile records).
[[nodiscard]] arch::Profile profile_of(const DataFile& file, const Case& test);
[[nodiscard]] kernel::KernelConfig config_of(const DataFile& file,
                                             const std::string& thp_mode);
[[nodiscard]] MachineShape shape_of(const arch::Profile& profile);

}  // namespace faultline::real_kernels
