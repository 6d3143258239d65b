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
  std::uint64_t anon_fault_alloc = 0, anon_fault_fallback = 0;
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

// Where a folio of that order lies that holds `at`.
[[nodiscard]] Range folio_range(const PageTables& pages, VirtAddr at, unsigned order);

}  // namespace faultline::kernel
