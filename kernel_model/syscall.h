// SPDX-License-Identifier: Apache-2.0
//
// The only door from user space into the modelled kernel.
//
// Every call: enters at the architecture's syscall centre, takes the locks that the kernel
// takes, in its order, charges the machine's costs, answers with the kernel's errno. `task`
// is the caller and must belong to `process`.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class File;  // kernel_model/mm/page_cache.h
class Process;

// mmap(2) of anonymous memory.  `length` in bytes, need not be a multiple of the page size.
SysResult<VirtAddr> sys_mmap(Task& task, Process& process, VirtAddr hint,
                             std::uint64_t length, unsigned prot, unsigned flags);
// mmap(2) of a file; without one, of anonymous memory.
SysResult<VirtAddr> sys_mmap_file(Task& task, Process& process, VirtAddr hint,
                                  std::uint64_t length, unsigned prot, unsigned flags,
                                  std::shared_ptr<File> file, std::uint64_t offset);
// pwrite(2): the pages are in the cache afterwards.  Answers the bytes written.
SysResult<std::uint64_t> sys_pwrite(Task& task, Process& process, File& file,
                                    std::uint64_t offset, std::uint64_t length);
SysStatus sys_munmap(Task& task, Process& process, VirtAddr start, std::uint64_t length);
SysStatus sys_mprotect(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                       unsigned prot);
SysStatus sys_madvise(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                      Madvise advice);
SysResult<VirtAddr> sys_mremap(Task& task, Process& process, VirtAddr old_start,
                               std::uint64_t old_length, std::uint64_t new_length,
                               unsigned flags, VirtAddr new_start = {});
// The raw call: answers the new break, or the old one if it could not be moved; never an
// errno.
VirtAddr sys_brk(Task& task, Process& process, VirtAddr new_break);
enum class MlockMode : std::uint8_t { kNow, kOnfault };  // MLOCK_ONFAULT of mlock2
SysStatus sys_mlock(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                    MlockMode mode = MlockMode::kNow);
SysStatus sys_munlock(Task& task, Process& process, VirtAddr start, std::uint64_t length);
// Appends 1 or 0 for each page to `present`; what came before an error is there.
SysStatus sys_mincore(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                      std::vector<std::uint8_t>& present);
// vrange(2) of the volatile-range patches; ENOSYS without them.  `fourth`: to v7
// `behavior`, which is not looked at; from v8 on the address of an int that becomes 1 if
// something was purged, or 0 for none: its value is written to `purged`.  Answers 0 or 1 to
// v7 (1: something was purged, of NOVOLATILE), from v8 on the bytes processed.
enum VrangeMode : int { kVrangeVolatile = 0, kVrangeNovolatile = 1 };
SysResult<std::uint64_t> sys_vrange(Task& task, Process& process, VirtAddr start,
                                    std::uint64_t length, int mode, VirtAddr fourth,
                                    int* purged = nullptr);
// prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, …); an empty name takes it away.
SysStatus sys_prctl_set_vma_anon_name(Task& task, Process& process, VirtAddr start,
                                      std::uint64_t length, std::string_view name);
// prctl(PR_SET_THP_DISABLE, disable, flags); 6.18 knows the flag
// PR_THP_DISABLE_EXCEPT_ADVISED.
enum class ThpDisable : unsigned { kCompletely = 0, kExceptAdvised = 2 };
SysStatus sys_prctl_set_thp_disable(Task& task, Process& process, bool disable,
                                    ThpDisable flags = ThpDisable::kCompletely);
// The child: a process with a copy of this one's address space, sharing its pages until a
// write.  The caller gives it a thread.  ENOMEM: the charge or the tables can't be had.
SysResult<Process*> sys_fork(Task& task, Process& process);
// Of the process's only thread: the profile's program, freshly started, in a new address
// space.
void sys_execve(Task& task, Process& process);
// Of the process's last thread: its memory goes.  The process object stays.
void sys_exit_group(Task& task, Process& process);
// clock_nanosleep as usleep makes it.
void sys_nanosleep(Task& task, Process& process, Duration d);
void sys_sched_yield(Task& task, Process& process);

// One user access of up to a page, inside one page: no cost if it is mapped so that the
// access is allowed (the hardware's work is the platform's to charge), else the page fault.
Signal user_access(Task& task, Process& process, VirtAddr at, Access access);

// How many bytes from `start` on, `length` at most, may be accessed without a fault; they
// are accessed.  `assisted`: entries in which
// hardware set the accessed or dirty bit.
struct AccessRun {
  std::uint64_t bytes = 0, assisted = 0;
};
AccessRun user_access_run(Process& process, VirtAddr start, std::uint64_t length,
                          Access access);
// The same, paid for: how much of a user_touch of each page is done at once.  Nothing where
// a TLB wants to hear of each.
std::uint64_t user_pass(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                        Access access);

// Accesses at start, start + stride, … below start + length: the same as a loop of
// user_access, but pages that are already mapped cost nothing to skip.  `failed` is where
// a signal stopped it.
Signal user_touch(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  std::uint64_t stride, Access access, VirtAddr* failed = nullptr);

}  // namespace faultline::kernel
