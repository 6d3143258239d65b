// SPDX-License-Identifier: Apache-2.0
//
// MADV_COLD and MADV_PAGEOUT: pages become old; with PAGEOUT they are reclaimed at once, as
// far as that is possible without swap.
//
// What is possible: pages that MADV_FREE has made clean are dropped.  Others can't go, but
// a huge page is taken apart on the way, since the kernel tries to swap its pieces one by
// one.
//
// Stands for: madvise_cold_or_pageout_pte_range() (mm/madvise.c), reclaim_pages(),
// shrink_folio_list() (mm/vmscan.c), v5.4-6.18.  Model: no swap; no LRU order, so that COLD
// only makes pages old; the pages of private file mappings are left alone.
#pragma once

#include <cstdint>

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;

enum class Reclaim : std::uint8_t { kNo, kNow };

// `range` lies in one anonymous VMA; mmap_lock or its lock is held.
void madvise_cold_or_pageout(Task& task, Mm& mm, Range range, Reclaim reclaim);

}  // namespace faultline::kernel
