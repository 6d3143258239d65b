// SPDX-License-Identifier: Apache-2.0
//
// Large folios below the PMD's size (mTHP): a base-page fault maps several pages at once,
// if sysfs allows a size, the VMA holds it aligned, and all its entries are still empty.
//
// Stands for: alloc_anon_folio() (mm/memory.c, v6.8-6.18), thp_vma_allowable_orders()
// (include/linux/huge_mm.h).  Model: no userfaultfd, no memory cgroup.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel_model/mm/fault_context.h"

namespace faultline::kernel {

// hugepages-<size>kB/stats of one order.
struct MthpStat {
  std::uint64_t anon_fault_alloc = 0, anon_fault_fallback = 0,
                anon_fault_fallback_charge = 0;
  std::uint64_t split = 0, split_failed = 0, split_deferred = 0;
  std::uint64_t nr_anon = 0, nr_anon_partially_mapped = 0;  // now
};
using MthpStats = std::array<MthpStat, 32>;

struct AnonFolio {
  Pfn head;
  unsigned order = 0;  // 0: an ordinary base page
};

// Bit n: order n may be used in this VMA, PMD order left out.  None before 6.8.
[[nodiscard]] std::uint32_t mthp_orders(const Kernel& kernel, const Mm& mm, const Vma& vma);

// The folio for a write fault whose entry is none, cleared; largest possible order first,
// down to a base page.  No answer without memory.
[[nodiscard]] std::optional<AnonFolio> alloc_anon_folio(Fault& fault, const Table& table);

// The part of the address space that one TLB entry may cover around the mapped page at
// `at`: a huge page, a contpte block, or a base page.  Stands for: contpte_set_ptes(),
// contpte_try_fold(), contpte_try_unfold() (arch/arm64/mm/contpte.c, v6.9-6.18).  Model: a
// block is folded whenever its entries allow it, not only when its last one is set.
[[nodiscard]] Range tlb_entry_range(const PageTables& pages, VirtAddr at);

// Where a folio of that order lies that holds `at`.
[[nodiscard]] Range folio_range(const PageTables& pages, VirtAddr at, unsigned order);

}  // namespace faultline::kernel
