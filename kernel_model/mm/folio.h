// SPDX-License-Identifier: Apache-2.0
//
// Questions about a compound page that page tables map in pieces: how much of it lies in a
// row here, and whether another address space maps any of it.
//
// Stands for: folio_pte_batch() (mm/internal.h, mm/util.c), folio_maybe_mapped_shared()
// (include/linux/mm.h, v6.15-6.18) and its forerunners.
#pragma once

#include <cstdint>

#include "kernel_model/types.h"

namespace faultline::kernel {

class Kernel;
struct Table;

// How many entries from `index` on, below `to`, map consecutive pieces of the page that the
// first one maps a piece of.  The first one maps an anonymous page.
[[nodiscard]] std::uint64_t folio_pte_batch(Kernel& kernel, const Table& table,
                                            std::uint64_t index, std::uint64_t to);

// Before 6.15: is any piece mapped twice?  From then on: do two address spaces map some of
// it, though different pieces?  Model: the kernel follows two address spaces a page, so
// that a third that is left alone with it still counts as one of several; here it doesn't.
[[nodiscard]] bool folio_maybe_mapped_shared(Kernel& kernel, Pfn head);

}  // namespace faultline::kernel
