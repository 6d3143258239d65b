// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/kernel_defaults.h"

#include <algorithm>

namespace faultline::arch {

KhugepagedDefaults khugepaged_defaults(const Geometry& geometry) {
  const std::uint64_t nr = geometry.pages_per_pmd();
  return {8 * nr, nr - 1, nr / 8, nr / 2};
}

LockCoverage lock_coverage(const Geometry& geometry) {
  const TableLevel& pte = geometry.levels.back();
  const TableLevel& pmd = geometry.levels[geometry.levels.size() - 2];
  return {geometry.pmd_size() * pte.tables_per_page,
          (geometry.pmd_size() << pmd.index_bits) * pmd.tables_per_page};
}

MinFree recommended_min_free(const Profile& profile) {
  // Two pageblocks to fill, and three migrate types that may each fall back to the others.
  constexpr std::uint64_t kMigratePcptypes = 3;
  constexpr std::uint64_t kBlocks = 2 + kMigratePcptypes * kMigratePcptypes;
  const Geometry& g = profile.geometry;
  const unsigned block_order = std::min(g.pmd_order(), g.max_order);
  MinFree out;
  out.per_zone_bytes = kBlocks * (g.page_size() << block_order);
  out.bytes = out.per_zone_bytes * profile.nodes.size();
  const std::uint64_t cap = profile.memory_bytes() / 20;
  if (out.bytes > cap) {
    out.bytes = cap / g.page_size() * g.page_size();
    out.capped = true;
  }
  return out;
}

}  // namespace faultline::arch
