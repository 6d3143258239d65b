// SPDX-License-Identifier: Apache-2.0
//
// What is always true of a kernel between two steps of its tasks; tests call it after every
// step.
#pragma once

namespace faultline::kernel {

class Kernel;
class Mm;

// Aborts with both sides of what disagrees.
void check_invariants(Kernel& kernel);

// Also while calls are under way: VMAs are ordered, disjoint, page aligned, with sane
// flags.
void check_vmas_in_order(const Mm& mm);

// The VMAs of one mm: ordered, disjoint, page aligned, sane flags; its counters are their
// sums.
void check_vma_invariants(const Mm& mm);

// No TLB holds what the page tables don't.
void check_tlbs(Kernel& kernel);

// Page tables, frames and counters of all processes agree.
void check_page_invariants(Kernel& kernel);

}  // namespace faultline::kernel
