// SPDX-License-Identifier: Apache-2.0
//
// Unmapping: the VMAs leave the set under mmap_lock held for write; their pages and tables
// go after that, since 4.20 with the lock held only for read.
//
// Stands for: SYSCALL munmap, do_munmap(), unmap_region(), remove_vma_list() (mm/mmap.c,
// v4.15-6.8; mm/vma.c, v6.12-6.18).
#include <vector>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// VMAs out of the set whose pages are still mapped, with the free space around them.
struct Detached {
  Vma* first = nullptr;  // the usual case is one VMA
  std::vector<Vma*> rest;
  VirtAddr floor, ceiling;   // where the neighbours end and begin; 0: there is none
  bool stack_above = false;  // the neighbour above grows down into the hole
  template <typename F>
  void for_each(F&& f) const {
    f(*first);
    for (Vma* vma : rest) f(*vma);
  }
};

// Splits at the edges of `range`; ENOMEM if a hole in one VMA would exceed max_map_count.
Errno split_edges(Task& task, Mm& mm, Vma* first, Range range) {
  if (range.start > first->start) {
    if (range.end < first->end && mm.vmas.size() >= mm.kernel().config().max_map_count)
      return Errno::kENOMEM;
    if (!hugetlb_may_split(*first, range.start)) return Errno::kEINVAL;
    split_vma(task, mm, *first, range.start);
  }
  Vma* const last = mm.vmas.find(range.end);
  if (last == nullptr || last->start >= range.end) return Errno::kOk;
  if (!hugetlb_may_split(*last, range.end)) return Errno::kEINVAL;
  split_vma(task, mm, *last, range.end);
  return Errno::kOk;
}

void uncount(Mm& mm, const Vma& vma) {
  const std::uint64_t pages = pages_of(mm, vma.bytes());
  vm_stat_account(mm, vma.vm_flags, -static_cast<std::int64_t>(pages));
  if ((vma.vm_flags & VM_LOCKED) != 0) mm.locked_vm -= pages;
  if ((vma.vm_flags & VM_ACCOUNT) != 0) vm_unacct_memory(mm.kernel(), pages);
}

// detach_vmas_to_be_unmapped(), with the counters' part of remove_vma_list().
Detached detach(Task& task, Mm& mm, Range range) {
  Detached out;
  Vma* vma = mm.vmas.find(range.start);
  Vma* const below = vma->prev();
  if (below != nullptr) out.floor = below->end;
  while (vma != nullptr && vma->start < range.end) {
    Vma* const next = vma->next();
    mm.vma_start_write(task, *vma);
    mm.vmas.remove(*vma);
    uncount(mm, *vma);
    if (out.first == nullptr)
      out.first = vma;
    else
      out.rest.push_back(vma);
    vma = next;
  }
  if (vma != nullptr) out.ceiling = vma->start;
  out.stack_above = vma != nullptr && (vma->vm_flags & VM_GROWSDOWN) != 0;
  return out;
}

void unmap_region(Task& task, Mm& mm, const Detached& gone, Range range) {
  const Scope scope(task, centre::kUnmapRegion);
  bool flushed = false;
  gone.for_each(
      [&](Vma& vma) { flushed |= mm.pages().zap_page_range(task, vma, vma.range()); });
  mm.pages().free_pgtables(task, range, gone.floor, gone.ceiling, flushed);
}

}  // namespace

MunmapResult do_munmap(Task& task, Mm& mm, VirtAddr start, std::uint64_t length,
                       MunmapLock lock) {
  const Scope scope(task, centre::kDoMunmap);
  const std::uint64_t task_size = mm.kernel().profile().layout.task_size;
  if (!page_aligned(mm, start) || start.v > task_size || length > task_size - start.v)
    return {Errno::kEINVAL};
  const Range range{start, start + page_align(mm, length)};
  if (range.empty()) return {Errno::kEINVAL};

  task.charge(mm.kernel().profile().costs.munmap_base);
  Vma* const first = mm.vmas.find(start);
  if (first == nullptr || first->start >= range.end) return {};
  if (const Errno error = split_edges(task, mm, first, range); error != Errno::kOk)
    return {error};
  const Detached gone = detach(task, mm, range);
  mm.process().discarded(range);

  // The neighbours may not grow into the hole while its tables go under the read lock.
  MunmapResult result;
  result.downgraded = lock == MunmapLock::kDowngrade &&
                      mm.kernel().config().munmap_downgrade && !gone.stack_above;
  if (result.downgraded) mm.mmap_write_downgrade(task);
  unmap_region(task, mm, gone, range);
  gone.for_each([&](Vma& vma) {
    hugetlb_vm_op_close(mm, vma);
    file_vm_op_close(task, mm, vma);
    mm.vmas.free(vma);
  });
  return result;
}

void unlock_after_munmap(Task& task, Mm& mm, const MunmapResult& result) {
  if (result.downgraded)
    mm.mmap_read_unlock(task);
  else
    mm.mmap_write_unlock(task);
}

SysStatus sys_munmap(Task& task, Process& process, VirtAddr start, std::uint64_t length) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMunmap);
  mm.mmap_write_lock(task);
  const MunmapResult result = do_munmap(task, mm, start, length, MunmapLock::kDowngrade);
  unlock_after_munmap(task, mm, result);
  return result.error;
}

}  // namespace faultline::kernel
