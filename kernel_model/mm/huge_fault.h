// SPDX-License-Identifier: Apache-2.0
//
// Huge pages as the faults handle them: allocated by the THP rules, mapped, or given back
// unused.
//
// Stands for: parts of mm/huge_memory.c, v4.15-6.18.
#pragma once

#include <optional>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {

// alloc_hugepage_direct_gfpmask(), vma_thp_gfp_mask(): by defrag mode and advice.
[[nodiscard]] GfpReclaim thp_gfp(const Kernel& kernel, const Vma& vma);
// By the VMA's advice and the defrag mode; counts nothing.
[[nodiscard]] MaybePfn alloc_huge_page(Fault& fault);
// One that nobody has mapped goes back.
void free_unmapped_huge_page(Fault& fault, Pfn page);
// Map count, LRU, counters, the entry; the deposit is in place.  The PMD's lock is held.
void map_huge_page(Fault& fault, Table& pmd, Pfn page);

// Counters of /proc/vmstat and of the size's own stats.
void count_huge_alloc(Fault& fault);
void count_huge_fallback(Fault& fault);

}  // namespace faultline::kernel
