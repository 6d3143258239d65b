// SPDX-License-Identifier: Apache-2.0
//
// What the page tables offer a TLB for one address, and how deep a walk must go for it.
#pragma once

#include "kernel_model/mm/page_tables.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

struct Translation {
  unsigned shift = 0;  // log2 of the block that one entry may translate
  unsigned level = 0;  // of the table that holds the leaf, the top one being 0
};

// `at` must be mapped.  A huge page, a block whose entries carry the contiguous bit, a page
// of a hugetlb pool, or a base page.
[[nodiscard]] Translation translation_of(PageTables& pages, VirtAddr at);

// The hardware sees `count` base pages around `at`, aligned to as many, as one: all present
// with the same rights and the same accessed and dirty bits, in frames that are contiguous
// and aligned alike.
[[nodiscard]] bool coalesces(PageTables& pages, VirtAddr at, unsigned count);

// The deepest table on the way to `at`: where a walk that finds nothing ends.
[[nodiscard]] unsigned deepest_level(PageTables& pages, VirtAddr at);

}  // namespace faultline::kernel
