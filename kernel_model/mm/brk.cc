// SPDX-License-Identifier: Apache-2.0
//
// brk(2): the heap that grows up from the program's end.
//
// Stands for: SYSCALL brk, do_brk_flags() (mm/mmap.c, v4.15-6.18).  Model: no RLIMIT_DATA.
#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// The VMA below grows if it is the heap (before 6.1: any that matches, and one above, too).
Vma* extend_heap(Task& task, Mm& mm, const VmaSpec& spec) {
  if (mm.kernel().config().brk_full_merge) return vma_merge_new_range(task, mm, spec);
  Vma* const heap = mm.vmas.last_below(spec.range.start);
  if (heap == nullptr || heap->end <= mm.start_brk) return nullptr;
  return vma_expand_up(task, mm, *heap, spec);
}

Errno do_brk_flags(Task& task, Mm& mm, Range range) {
  const Scope scope(task, centre::kDoBrkFlags);
  const std::uint64_t pages = pages_of(mm, range.bytes());
  VmaSpec spec;
  spec.range = range;
  spec.vm_flags = calc_vm_flags(mm, kProtRead | kProtWrite, 0) | VM_ACCOUNT;
  spec.vm_pgoff = pages_of(mm, range.start.v);
  if (range.end.v > mm.kernel().profile().layout.task_size) return Errno::kENOMEM;
  if (mm.vmas.size() > mm.kernel().config().max_map_count) return Errno::kENOMEM;
  if (!vm_enough_memory(mm, pages)) return Errno::kENOMEM;
  if (extend_heap(task, mm, spec) == nullptr) {
    spec.name = "[heap]";
    vma_link(task, mm, spec);
  }
  vm_stat_account(mm, spec.vm_flags, static_cast<std::int64_t>(pages));
  if ((spec.vm_flags & VM_LOCKED) != 0) mm.locked_vm += pages;
  return Errno::kOk;
}

Errno grow(Task& task, Mm& mm, Range range) {
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  const Vma* const next = mm.vmas.find(range.start);
  if (range.end.v < range.start.v) return Errno::kENOMEM;
  if (next != nullptr && range.end.v + page > mm.vmas.start_gap(*next))
    return Errno::kENOMEM;
  return do_brk_flags(task, mm, range);
}

}  // namespace

VirtAddr sys_brk(Task& task, Process& process, VirtAddr new_break) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysBrk);
  mm.mmap_write_lock(task);
  task.charge(kernel.profile().costs.brk_base);

  MunmapResult shrunk;
  Range grown{};
  if (new_break >= mm.start_brk) {
    const VirtAddr old_end{page_align(mm, mm.brk.v)};
    const VirtAddr new_end{page_align(mm, new_break.v)};
    Errno error = Errno::kOk;
    if (new_break <= mm.brk && new_end < old_end) {
      shrunk = do_munmap(task, mm, new_end, old_end - new_end, MunmapLock::kDowngrade);
      error = shrunk.error;
    } else if (new_end != old_end) {
      grown = {old_end, new_end};
      error = grow(task, mm, grown);
    }
    if (error == Errno::kOk)
      mm.brk = new_break;
    else
      grown = {};
  }
  const VirtAddr answer = mm.brk;
  const bool populate = !grown.empty() && (mm.def_flags & VM_LOCKED) != 0;
  unlock_after_munmap(task, mm, shrunk);
  if (populate) static_cast<void>(mm_populate(task, mm, grown));
  return answer;
}

}  // namespace faultline::kernel
