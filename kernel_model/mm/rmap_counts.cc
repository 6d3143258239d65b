// SPDX-License-Identifier: Apache-2.0
//
// What pages say of their mappings, without changing anything.
#include "kernel_model/mm/rmap_counts.h"

#include <algorithm>

#include "kernel_model/mm/rmap.h"

namespace faultline::kernel {

std::uint32_t compound_mapcount(Kernel& kernel, Pfn head) {
  const bool compound = (kernel.phys().page(head).flags & Page::kHead) != 0;
  return compound ? compound_mapcount_of(kernel.phys(), head) : 0;
}

std::int32_t pte_mapcount(Kernel& kernel, Pfn pfn) {
  const HugePieces& bits = huge_pieces(kernel);
  if (bits.has_bits(bits.head_of(pfn))) return bits.mapped(pfn) ? 1 : 0;
  return kernel.phys().page(pfn).mapcount;
}

std::int32_t page_mapcount(Kernel& kernel, Pfn head, Pfn pfn) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(head).flags & Page::kHead) == 0) return phys.page(head).mapcount;
  const bool kept = huge_pieces(kernel).has_bits(head) || has_pieces(phys, head);
  const std::int32_t by_pte = kept ? pte_mapcount(kernel, pfn) : 0;
  return by_pte + static_cast<std::int32_t>(compound_mapcount_of(phys, head));
}

std::int32_t max_mapcount(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(head).flags & Page::kHead) == 0) return phys.page(head).mapcount;
  std::int32_t most = 0;
  if (huge_pieces(kernel).has_bits(head))
    most = nr_pages_mapped_of(phys, head) > 0 ? 1 : 0;
  else if (has_pieces(phys, head))
    for (std::uint32_t i = 0; i < 1U << phys.page(head).order; ++i)
      most = std::max(most, phys.page({head.v + i}).mapcount);
  return most + static_cast<std::int32_t>(compound_mapcount_of(phys, head));
}

bool is_exclusive(Kernel& kernel, Pfn pfn) {
  const HugePieces& bits = huge_pieces(kernel);
  const Pfn source = bits.has_bits(bits.head_of(pfn)) ? bits.head_of(pfn) : pfn;
  return (kernel.phys().page(source).flags & Page::kAnonExclusive) != 0;
}

std::uint64_t page_index(Kernel& kernel, Pfn head) {
  const auto half = [&](std::uint32_t i) {
    return std::uint64_t{
        static_cast<std::uint32_t>(kernel.phys().page({head.v + i}).refcount)};
  };
  return half(1) | half(2) << 32;
}

std::int32_t total_mapcount(Kernel& kernel, Pfn head) {
  PhysMem& phys = kernel.phys();
  if ((phys.page(head).flags & Page::kHead) == 0) return phys.page(head).mapcount;
  auto total = static_cast<std::int32_t>(compound_mapcount_of(phys, head));
  if (huge_pieces(kernel).has_bits(head))
    total += static_cast<std::int32_t>(nr_pages_mapped_of(phys, head));
  else if (has_pieces(phys, head))
    for (std::uint32_t i = 0; i < 1U << phys.page(head).order; ++i)
      total += phys.page({head.v + i}).mapcount;
  return total;
}

bool page_dirty(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(compound_head(kernel, pfn)).flags & Page::kDirty) != 0;
}

bool is_lazyfree(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(compound_head(kernel, pfn)).flags & Page::kLazyfree) != 0;
}

}  // namespace faultline::kernel
