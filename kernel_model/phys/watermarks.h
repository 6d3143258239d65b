// SPDX-License-Identifier: Apache-2.0
//
// How much of each zone is kept free: min_free_kbytes as the kernel derives it at boot,
// raised for huge pages as khugepaged asks for it, and the zones' watermarks from it.
//
// Stands for: calculate_min_free_kbytes, __setup_per_zone_wmarks (mm/page_alloc.c,
// v4.15-6.18), set_recommended_min_free_kbytes (mm/khugepaged.c).
#pragma once

#include <cstdint>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"

namespace faultline::kernel {

// In pages.
struct Watermarks {
  std::uint64_t min = 0, low = 0, high = 0;
};

struct WatermarkSetup {
  std::uint64_t min_free_kbytes = 0;
  std::vector<Watermarks> zones;
};

// `managed`: pages of each zone.
[[nodiscard]] WatermarkSetup init_per_zone_wmark_min(
    const arch::Geometry& geometry, const KernelConfig& config,
    const std::vector<std::uint64_t>& managed);

}  // namespace faultline::kernel
