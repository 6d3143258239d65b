// SPDX-License-Identifier: Apache-2.0
//
// System calls that need no memory management: sleeping and yielding.  The others are in
// mm/, one file a call; user accesses are in mm/access.cc.
#include "kernel_model/syscall.h"

#include "kernel_model/kernel.h"
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

}  // namespace faultline::kernel
