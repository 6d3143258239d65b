// SPDX-License-Identifier: Apache-2.0
//
// Where a page lies in its anonymous mapping: what reclaim finds its entries by.
//
// Stands for: __page_set_anon_rmap() (mm/rmap.c, v4.15-6.18).
#pragma once

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"

namespace faultline::kernel {

// Of a new page at `at`; kept from the first reclaim on only.
inline void note_anon_index(Kernel& kernel, Pfn page, const Vma& vma, VirtAddr at) {
  Lru& lrus = kernel.mm_shared().lrus;
  if (lrus.lists_kept()) [[unlikely]]
    lrus.note_anon_index(page,
                         vma.linear_page_index(at, kernel.profile().geometry.page_shift));
}

}  // namespace faultline::kernel
