// SPDX-License-Identifier: Apache-2.0
//
// Doors from user space that need no VMA work: sleeping, yielding, and the accesses that may fault.
// The other system calls are in mm/, one file a call.
#include "kernel_model/syscall.h"

#include <algorithm>

#include "kernel_model/mm/fault.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"

namespace faultline::kernel {

void sys_nanosleep(Task& task, Process& process, Duration d) {
  const Scope entry(task, process.kernel().centres().syscall_entry);
  task.charge(process.kernel().profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysNanosleep);
  task.sleep(d);
}

void sys_sched_yield(Task& task, Process& process) {
  const Scope entry(task, process.kernel().centres().syscall_entry);
  task.charge(process.kernel().profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysSchedYield);
  task.sync();
}

Signal user_access(Task& task, Process& process, VirtAddr at, Access access) {
  PageTables& pages = process.mm().pages();
  // A fault may be over without the access being possible (a lost race): then it traps again.
  while (!pages.hw_access(at, access)) {
    const Signal signal = do_user_page_fault(task, process, at, access);
    if (signal != Signal::kNone) return signal;
  }
  return Signal::kNone;
}

Signal user_touch(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  std::uint64_t stride, Access access) {
  const arch::Geometry& geometry = process.kernel().profile().geometry;
  const std::uint64_t pmd = geometry.pmd_size();
  const VirtAddr end = start + length;
  for (VirtAddr at = start; at < end;) {
    const Signal signal = user_access(task, process, at, access);
    if (signal != Signal::kNone) return signal;
    const PageView::Kind kind = process.mm().pages().look(at).kind;
    const bool huge = kind == PageView::kHuge || kind == PageView::kHugeZero;
    const std::uint64_t size = huge ? pmd : geometry.page_size();
    const VirtAddr page_end{(at.v & ~(size - 1)) + size};
    if (page_end >= end) break;
    // The first step that leaves what is mapped now.
    const std::uint64_t steps = std::max<std::uint64_t>(1, (page_end - at + stride - 1) / stride);
    at = at + steps * stride;
  }
  return Signal::kNone;
}

}  // namespace faultline::kernel
