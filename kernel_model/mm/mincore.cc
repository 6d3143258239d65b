// SPDX-License-Identifier: Apache-2.0
//
// mincore(2): which pages are there.
//
// Stands for: SYSCALL mincore, do_mincore() (mm/mincore.c, v4.15-6.18).  Model: the pages
// of the program's own file count as there.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// Pages that one pass under mmap_lock looks at: what fits one page of answers.
void look_at(Mm& mm, const Vma& vma, Range part, std::vector<std::uint8_t>& present) {
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  const unsigned shift = mm.kernel().profile().geometry.page_shift;
  for (VirtAddr at = part.start; at < part.end; at = at + page) {
    const PageView::Kind kind = mm.pages().look(at).kind;
    bool mapped =
        kind != PageView::kNone && kind != PageView::kGuard && kind != PageView::kPurged;
    if (kind == PageView::kSwap)  // mincore_page(): in the swap cache?
      mapped = mm.kernel().mm_shared().swap.cached(mm.pages().look(at).pfn.v).has_value();
    const bool cached = vma.file
                            ? vma.file->find(vma.linear_page_index(at, shift)).has_value()
                            : !vma.anonymous && (vma.vm_flags & VM_HUGETLB) == 0;
    present.push_back(mapped || cached ? 1 : 0);
  }
}

Errno mincore_pass(Task& task, Mm& mm, VirtAddr& at, VirtAddr end,
                   std::vector<std::uint8_t>& present) {
  const Scope scope(task, centre::kSysMincore);
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  const VirtAddr pass_end{std::min(end.v, at.v + page * page)};
  mm.mmap_read_lock(task);
  const Vma* const vma = mm.vmas.at(at);
  Errno error = Errno::kENOMEM;
  if (vma != nullptr) {
    const Range part{at, std::min(vma->end, pass_end)};
    task.charge(mm.pages().costs().pmd_walk *
                static_cast<std::int64_t>(pages_of(mm, part.bytes())));
    look_at(mm, *vma, part, present);
    at = part.end;
    error = Errno::kOk;
  }
  mm.mmap_read_unlock(task);
  return error;
}

}  // namespace

SysStatus sys_mincore(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                      std::vector<std::uint8_t>& present) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  if (!page_aligned(mm, start)) return Errno::kEINVAL;
  const std::uint64_t task_size = kernel.profile().layout.task_size;
  if (length > task_size || start.v > task_size - length) return Errno::kENOMEM;
  const VirtAddr end = start + page_align(mm, length);
  for (VirtAddr at = start; at < end;)
    if (const Errno error = mincore_pass(task, mm, at, end, present); error != Errno::kOk)
      return error;
  return Errno::kOk;
}

}  // namespace faultline::kernel
