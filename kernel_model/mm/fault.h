// SPDX-License-Identifier: Apache-2.0
//
// Page faults: from the trap to the page.
//
// Stands for: arch fault entry (arch/*/mm/fault.c), handle_mm_fault and below (mm/memory.c,
// mm/huge_memory.c), v4.15-6.18; the order of decisions is do_huge_pmd_anonymous_page()'s.
#pragma once

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Process;

// A user-mode fault: takes the VMA's lock (6.4+) or mmap_lock for read, finds the VMA,
// handles the fault, charges it all.  Called when PageTables::accessible is false.
Signal do_user_page_fault(Task& task, Process& process, VirtAddr at, Access access);

// Write faults of [at, end), one after the other, as far as nothing can come between: fresh
// anonymous base pages under one page table that exists, plenty of memory, locks that
// nobody holds or awaits.  Answers how many pages are mapped now; 0: an ordinary fault must
// do it. Precondition: `at` and `end` are page boundaries, and the first page is not
// mapped.
std::uint64_t anon_fault_run(Task& task, Process& process, VirtAddr at, VirtAddr end);

}  // namespace faultline::kernel
