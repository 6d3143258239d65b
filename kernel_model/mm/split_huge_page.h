// SPDX-License-Identifier: Apache-2.0
//
// Breaking a compound page up into single pages, and the shrinker that does so under
// reclaim.
//
// A split of the mapping (__split_huge_pmd) frees nothing.  A split of the page does:
// pieces that nobody maps any more become free memory.  It needs every mapping of the page
// to be undone first, so it is the heavier of the two, and fails if somebody holds another
// reference.
//
// Stands for: split_huge_page(), deferred_split_scan() (mm/huge_memory.c, v4.15-6.18).
#pragma once

#include <cstdint>
#include <functional>

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;
struct Vma;

// rmap_walk(): each place where a piece of the compound page may be mapped: the part of the
// address space of each process that its index belongs to.
void for_each_place_of(Kernel& kernel, Pfn head,
                       const std::function<void(Mm&, Vma&, Range)>& f);

// True if the page is single pages now.  `extra_references`: those that the caller knows
// of.
bool split_huge_page(Task& task, Kernel& kernel, Pfn head,
                     std::int32_t extra_references = 0);

// The shrinker: splits those of the `pages` oldest queued huge pages that are partially
// mapped, or hold more zero pages than khugepaged's max_ptes_none (6.12); answers how many
// base pages that freed.  Partially mapped ones that fail go to the end of the queue,
// others leave it.  Model: the contents of pages are known only where somebody watches them
// (Kernel::watch_contents); otherwise every page is taken to hold data.
std::uint64_t deferred_split_scan(Task& task, Kernel& kernel, std::uint64_t pages);

}  // namespace faultline::kernel
