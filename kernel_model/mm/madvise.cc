// SPDX-License-Identifier: Apache-2.0
//
// madvise(2): the checks, the lock, and the walk over VMAs.  A hole is skipped, and makes
// the answer ENOMEM in the end.
#include "kernel_model/mm/madvise.h"

#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// madvise_walk_vmas()
Errno walk_vmas(Task& task, Mm& mm, Range range, Madvise advice) {
  Errno hole = Errno::kOk;
  VirtAddr at = range.start;
  for (Vma* vma = mm.vmas.find(at);; vma = vma->next()) {
    if (vma == nullptr) return Errno::kENOMEM;
    if (at < vma->start) {
      hole = Errno::kENOMEM;
      at = vma->start;
      if (at >= range.end) return hole;
    }
    const Range part{at, std::min(vma->end, range.end)};
    const Errno error = madvise_vma(task, mm, vma, part, advice);
    if (error != Errno::kOk) return error;
    at = vma->end;
    if (at >= range.end) return hole;
  }
}

// The range lies in one VMA whose lock can be had: mmap_lock isn't needed.  False: it is.
bool try_under_vma_lock(Task& task, Mm& mm, Range range, Madvise advice, Errno& error) {
  if (!mm.has_vma_locks()) return false;
  task.sync();
  task.charge(mm.kernel().profile().costs.vma_lookup);
  Vma* vma = mm.vmas.at(range.start);
  if (vma == nullptr || !mm.vma_start_read(task, *vma)) return false;
  const bool inside = range.end <= vma->end;
  Vma* same = vma;
  if (inside) error = madvise_vma(task, mm, same, range, advice);
  mm.vma_end_read(task, *vma);
  return inside;
}

Errno populate_under_lock(Task& task, Mm& mm, Range range, Madvise advice) {
  const Access access = advice == Madvise::kPopulateWrite ? Access::kWrite : Access::kRead;
  mm.mmap_read_lock(task);
  const Errno error = madvise_populate(task, mm, range, access);
  mm.mmap_read_unlock(task);
  return error;
}

Errno do_madvise(Task& task, Mm& mm, Range range, Madvise advice) {
  if (advice == Madvise::kPopulateRead || advice == Madvise::kPopulateWrite)
    return populate_under_lock(task, mm, range, advice);
  const AdviceLock lock = advice_lock(mm.kernel(), advice);
  Errno error = Errno::kOk;
  if (lock == AdviceLock::kVmaRead && try_under_vma_lock(task, mm, range, advice, error))
    return error;
  if (lock == AdviceLock::kWrite) {
    mm.mmap_write_lock(task);
    error = walk_vmas(task, mm, range, advice);
    mm.mmap_write_unlock(task);
  } else {
    mm.mmap_read_lock(task);
    error = walk_vmas(task, mm, range, advice);
    mm.mmap_read_unlock(task);
  }
  return error;
}

}  // namespace

SysStatus sys_madvise(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                      Madvise advice) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMadvise);

  if (!advice_known(kernel, advice)) return Errno::kEINVAL;
  if (!page_aligned(mm, start)) return Errno::kEINVAL;
  const std::uint64_t rounded = page_align(mm, length);
  if (length != 0 && rounded == 0) return Errno::kEINVAL;
  const Range range{start, start + rounded};
  if (range.end < range.start) return Errno::kEINVAL;
  if (range.empty()) return Errno::kOk;
  task.charge(kernel.profile().costs.madvise_base);
  return do_madvise(task, mm, range, advice);
}

}  // namespace faultline::kernel
