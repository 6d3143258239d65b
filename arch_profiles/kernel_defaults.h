// SPDX-License-Identifier: Apache-2.0
//
// What Linux computes from the page geometry and the memory of a machine.
#pragma once

#include <cstdint>

#include "arch_profiles/profile.h"

namespace faultline::arch {

// khugepaged_init(), mm/khugepaged.c (v6.1).
struct KhugepagedDefaults {
  std::uint64_t pages_to_scan = 0, max_ptes_none = 0, max_ptes_swap = 0,
                max_ptes_shared = 0;
};
[[nodiscard]] KhugepagedDefaults khugepaged_defaults(const Geometry& geometry);

// Addresses that one page-table lock covers: those of the tables that share its page.
struct LockCoverage {
  std::uint64_t pte_ptl_bytes = 0;
  std::uint64_t pmd_ptl_bytes = 0;  // where the PMD lock is split
};
[[nodiscard]] LockCoverage lock_coverage(const Geometry& geometry);

// set_recommended_min_free_kbytes(), mm/khugepaged.c (v6.1): what min_free_kbytes is raised
// to while THP isn't "never".  Model: one populated zone a node.
struct MinFree {
  std::uint64_t per_zone_bytes = 0;  // before the cap
  std::uint64_t bytes = 0;           // on this machine
  bool capped = false;               // by 5 % of memory
};
[[nodiscard]] MinFree recommended_min_free(const Profile& profile);

}  // namespace faultline::arch
