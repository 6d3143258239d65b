// SPDX-License-Identifier: Apache-2.0
//
// Where the map counts of a compound page are kept: for rmap.cc and rmap_counts.cc alone.
#pragma once

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {

inline std::uint32_t& compound_mapcount_of(PhysMem& phys, Pfn head) {
  return phys.page({head.v + 1}).link;
}
inline std::uint32_t& nr_pages_mapped_of(PhysMem& phys, Pfn head) {
  return phys.page({head.v + 2}).link;
}

// Pieces carry state of their own only once one is mapped twice, by whatever: until then
// their struct pages are not touched (HugePieces).
inline bool has_pieces(PhysMem& phys, Pfn head) {
  return (phys.page({head.v + 1}).flags & Page::kTail) != 0;
}

inline HugePieces& huge_pieces(Kernel& kernel) {
  return kernel.mm_shared().huge_pieces;
}

}  // namespace faultline::kernel
