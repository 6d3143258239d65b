// SPDX-License-Identifier: Apache-2.0
//
// Faulting pages in without user accesses: see populate.h.
#include "kernel_model/mm/populate.h"

#include <algorithm>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"

namespace faultline::kernel {

namespace {

// faultin_page()
Errno faultin_page(Task& task, Mm& mm, Vma& vma, VirtAddr at, Access access) {
  Fault fault{task, mm.kernel(), mm, mm.pages(), vma, at, access, false};
  switch (handle_mm_fault(fault)) {
    case FaultResult::kIo:
      ++mm.process().majflt;
      // Model: mmap_lock stays held; the kernel gives it up here.
      return wait_for_io(task, mm.kernel(), fault.io) == FaultResult::kOom ? Errno::kENOMEM
                                                                           : Errno::kOk;
    case FaultResult::kOom:
      return Errno::kENOMEM;
    case FaultResult::kSigbus:
    case FaultResult::kSigsegv:
      return Errno::kEFAULT;
    default:
      ++mm.process().minflt;
      return Errno::kOk;
  }
}

// __get_user_pages(): a page is looked up, and faulted in until it is there; the rest of a
// huge page is skipped.
Errno get_user_pages(Task& task, Mm& mm, Vma& vma, Range range, Access access) {
  PageTables& pages = mm.pages();
  for (VirtAddr at = range.start; at < range.end;) {
    task.charge(pages.costs().pmd_walk);
    while (!pages.accessible(at, access))
      if (const Errno error = faultin_page(task, mm, vma, at, access); error != Errno::kOk)
        return error;
    // FOLL_TOUCH: what is written to is dirty, lazily freed or not.  Model: the entry is,
    // not the page.
    if (access == Access::kWrite) static_cast<void>(pages.hw_access(at, access));
    const PageView::Kind kind = pages.look(at).kind;
    const bool huge = kind == PageView::kHuge || kind == PageView::kHugeZero;
    at = (huge ? pages.pmd_range(at) : pages.page_range(at)).end;
  }
  return Errno::kOk;
}

// check_vma_flags(), with FOLL_FORCE for what is accessible at all.
bool fault_may_be_tried(const Vma& vma) {
  constexpr std::uint64_t kNoPages = VM_IO | VM_PFNMAP;
  return (vma.vm_flags & kNoPages) == 0 && (vma.vm_flags & kVmAccessFlags) != 0;
}

}  // namespace

Errno populate_vma_page_range(Task& task, Mm& mm, Vma& vma, Range part) {
  if ((vma.vm_flags & VM_LOCKONFAULT) != 0) return Errno::kOk;
  if (!fault_may_be_tried(vma)) return Errno::kEFAULT;
  const bool write = (vma.vm_flags & (VM_WRITE | VM_SHARED)) == VM_WRITE;
  return get_user_pages(task, mm, vma, part, write ? Access::kWrite : Access::kRead);
}

Errno mm_populate(Task& task, Mm& mm, Range range) {
  const Scope scope(task, centre::kMmPopulate);
  if (range.empty()) return Errno::kOk;
  Errno error = Errno::kOk;
  mm.mmap_read_lock(task);
  for (Vma* vma = mm.vmas.find(range.start);
       vma != nullptr && vma->start < range.end && error == Errno::kOk; vma = vma->next()) {
    if ((vma->vm_flags & (VM_IO | VM_PFNMAP)) != 0) continue;
    const Range part{std::max(vma->start, range.start), std::min(vma->end, range.end)};
    error = populate_vma_page_range(task, mm, *vma, part);
  }
  mm.mmap_read_unlock(task);
  return error;
}

Errno madvise_populate(Task& task, Mm& mm, Range range, Access access) {
  for (VirtAddr at = range.start; at < range.end;) {
    Vma* const vma = mm.vmas.at(at);
    if (vma == nullptr) return Errno::kENOMEM;
    const std::uint64_t needed = access == Access::kWrite ? VM_WRITE : VM_READ;
    if ((vma->vm_flags & (VM_IO | VM_PFNMAP)) != 0 || (vma->vm_flags & needed) == 0)
      return Errno::kEINVAL;
    const Range part{at, std::min(vma->end, range.end)};
    if (const Errno error = get_user_pages(task, mm, *vma, part, access);
        error != Errno::kOk)
      return error;
    at = part.end;
  }
  return Errno::kOk;
}

}  // namespace faultline::kernel
