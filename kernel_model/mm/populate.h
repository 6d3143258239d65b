// SPDX-License-Identifier: Apache-2.0
//
// Faulting pages in without user accesses: MAP_POPULATE, mlock, MADV_POPULATE_*.
//
// Stands for: __mm_populate(), populate_vma_page_range(), faultin_vma_page_range(),
// __get_user_pages() (mm/gup.c, mm/mlock.c, v4.15-6.18).  Model: mmap_lock stays held for
// read over a whole VMA, as it does for anonymous memory; nothing interrupts.
#pragma once

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;
struct Vma;

// __mm_populate(): writable private VMAs as if written, others as if read; the parts that
// are mapped `on fault` only are left out.  Takes mmap_lock for read.  Holes are skipped.
Errno mm_populate(Task& task, Mm& mm, Range range);

// populate_vma_page_range(): `part` of `vma` alone; the caller holds mmap_lock.
Errno populate_vma_page_range(Task& task, Mm& mm, Vma& vma, Range part);

// madvise_populate(): the caller holds mmap_lock for read.
Errno madvise_populate(Task& task, Mm& mm, Range range, Access access);

}  // namespace faultline::kernel
