// SPDX-License-Identifier: Apache-2.0
//
// mlock(2), mlock2(2), munlock(2): a VMA flag, and the pages faulted in.
//
// Stands for: do_mlock(), apply_vma_lock_flags(), mlock_fixup() (mm/mlock.c, v4.15-6.18).
// Model: no RLIMIT_MEMLOCK.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

inline constexpr std::uint64_t kLockFlags = VM_LOCKED | VM_LOCKONFAULT;

// Whole pages that hold [start, start + length).  Empty if the length rounds to nothing or
// wraps.
struct PageSpan {
  VirtAddr start;
  std::uint64_t bytes;
};
PageSpan page_span(const Mm& mm, VirtAddr start, std::uint64_t length) {
  const std::uint64_t offset = start.v & (mm.kernel().profile().geometry.page_size() - 1);
  return {start - offset, page_align(mm, length + offset)};
}

// `vma` becomes the VMA that holds `part` then.
Errno mlock_fixup(Task& task, Mm& mm, Vma*& vma, Range part, std::uint64_t new_flags) {
  const std::uint64_t old_flags = vma->vm_flags;
  if (new_flags == old_flags || (old_flags & (kVmSpecial | VM_HUGETLB)) != 0)
    return Errno::kOk;
  VmaSpec spec = VmaSpec::of(*vma, part, mm.kernel().profile().geometry.page_shift);
  spec.vm_flags = new_flags;
  Vma* const changed = vma_modify(task, mm, *vma, spec);
  if (changed == nullptr) return Errno::kENOMEM;
  vma = changed;
  const std::uint64_t pages = pages_of(mm, part.bytes());
  if ((old_flags & VM_LOCKED) != 0) mm.locked_vm -= pages;
  if ((new_flags & VM_LOCKED) != 0) mm.locked_vm += pages;
  // mlock_vma_pages_range(): what waits for the LRU gets there first.
  mm.kernel().mm_shared().lru.lru_add_drain(task.cpu());
  mm.pages().mlock_pages(part, (new_flags & VM_LOCKED) != 0);
  return Errno::kOk;
}

// apply_vma_lock_flags()
Errno apply_lock_flags(Task& task, Mm& mm, PageSpan span, std::uint64_t lock_flags) {
  const Range range{span.start, span.start + span.bytes};
  if (range.end < range.start) return Errno::kEINVAL;
  if (range.empty()) return Errno::kOk;
  Vma* vma = mm.vmas.at(range.start);
  if (vma == nullptr) return Errno::kENOMEM;
  for (VirtAddr at = range.start;;) {
    const std::uint64_t new_flags = (vma->vm_flags & ~kLockFlags) | lock_flags;
    const Range part{at, std::min(vma->end, range.end)};
    if (const Errno error = mlock_fixup(task, mm, vma, part, new_flags);
        error != Errno::kOk)
      return error;
    at = std::max(part.end, vma->end);
    if (at >= range.end) return Errno::kOk;
    vma = vma->next();
    if (vma == nullptr || vma->start != at) return Errno::kENOMEM;
  }
}

// __mlock_posix_error_return()
Errno posix_error(Errno error) {
  if (error == Errno::kEFAULT) return Errno::kENOMEM;
  if (error == Errno::kENOMEM) return Errno::kEAGAIN;
  return error;
}

Errno set_lock_flags(Task& task, Mm& mm, PageSpan span, std::uint64_t lock_flags) {
  mm.mmap_write_lock(task);
  task.charge(mm.kernel().profile().costs.madvise_base);
  const Errno error = apply_lock_flags(task, mm, span, lock_flags);
  mm.mmap_write_unlock(task);
  return error;
}

}  // namespace

SysStatus sys_mlock(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                    MlockMode mode) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMlock);
  const PageSpan span = page_span(mm, start, length);
  const bool onfault = mode == MlockMode::kOnfault;
  const Errno error = set_lock_flags(task, mm, span, onfault ? kLockFlags : VM_LOCKED);
  if (error != Errno::kOk) return error;
  return posix_error(mm_populate(task, mm, {span.start, span.start + span.bytes}));
}

SysStatus sys_munlock(Task& task, Process& process, VirtAddr start, std::uint64_t length) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMunlock);
  return set_lock_flags(task, mm, page_span(mm, start, length), VM_NONE);
}

}  // namespace faultline::kernel
