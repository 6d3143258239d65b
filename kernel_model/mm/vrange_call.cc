// SPDX-License-Identifier: Apache-2.0
//
// vrange(2): the checks in their order, the lock of each version, the answer of each.
//
// Stands for: SYSCALL vrange (mm/vrange.c, v7 to v10); mvolatile and mnovolatile of v4 to
// v6 (mm/mvolatile.c).  Model: the two calls of v4 to v6 are the two modes of this one.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

using Answer = SysResult<std::uint64_t>;

constexpr std::uint64_t kNotMarkable = kVmSpecial | VM_LOCKED | VM_HUGETLB;

// Nodes that one call allocates before it takes the lock: it may need one.
Errno mark(Task& task, VrangeRoot& root, Range range, int mode, bool& purged) {
  Vranges& shared = root.mm().kernel().mm_shared().vranges();
  task.charge(root.mm().pages().costs().vrange_base);
  if (!shared.alloc_node(task)) return Errno::kENOMEM;
  root.lock().lock(task);
  const bool used =
      mode == kVrangeVolatile ? root.add(task, range) : root.remove(task, range, purged);
  root.lock().unlock(task);
  if (!used) shared.free_node(task);
  return Errno::kOk;
}

// v7: no look at the VMAs.
Answer vrange_v7(Task& task, Mm& mm, Range range, int mode) {
  bool purged = false;
  if (const Errno error = mark(task, *mm.vranges(), range, mode, purged);
      error != Errno::kOk)
    return error;
  const Kernel& kernel = mm.kernel();
  const bool tight = mode == kVrangeVolatile && kernel.config().vrange_reports_pressure &&
                     mm.kernel().mm_shared().vranges().pressure_is_severe(task);
  return std::uint64_t{purged || tight ? 1U : 0U};
}

// do_vrange() (v8 to v10): VMA after VMA; holes between them count as done.  It ends at the
// first that can't be marked, and before a hole at the range's end.
Answer vrange_v8(Task& task, Mm& mm, Range range, int mode, int* result) {
  bool purged = false;
  std::uint64_t done = 0;
  Errno error = Errno::kOk;
  mm.mmap_read_lock(task);
  task.charge(mm.pages().costs().vma_lookup);
  for (const Vma* vma = mm.find_vma(range.start); vma != nullptr && vma->start < range.end;
       vma = vma->next()) {
    if ((vma->vm_flags & kNotMarkable) != 0) break;
    const Range part{std::max(vma->start, range.start), std::min(vma->end, range.end)};
    error = mark(task, *mm.vranges(), part, mode, purged);
    if (error != Errno::kOk) break;
    done = part.end - range.start;
  }
  mm.mmap_read_unlock(task);
  if (result != nullptr) *result = purged ? 1 : 0;
  if (done == 0 && error != Errno::kOk) return error;
  return done;
}

// One VMA of v4 to v6: its flag, which splits and merges it.
Errno mark_vma(Task& task, Mm& mm, Vma*& vma, Range part, int mode, bool& purged) {
  const std::uint64_t old = vma->vm_flags;
  if (mode == kVrangeVolatile && (old & kNotMarkable) != 0) return Errno::kEINVAL;
  if (mode == kVrangeVolatile && !vma->anonymous) return Errno::kEINVAL;
  purged |= mode != kVrangeVolatile && (old & VM_PURGED) != 0;
  VmaSpec spec = VmaSpec::of(*vma, part, mm.kernel().profile().geometry.page_shift);
  spec.vm_flags = mode == kVrangeVolatile ? old | VM_VOLATILE
                                          : old & ~std::uint64_t{VM_VOLATILE | VM_PURGED};
  if (spec.vm_flags == old) return Errno::kOk;
  const std::uint64_t purges = mm.vma_purges;
  Vma* const changed = vma_modify(task, mm, *vma, spec);
  if (changed == nullptr) return Errno::kENOMEM;
  purged |= mode != kVrangeVolatile && mm.vma_purges != purges;  // while it was split
  vma = changed;
  return Errno::kOk;
}

// The purge state of what was un-marked is lost if a split fails half way.
Answer vrange_vma(Task& task, Mm& mm, Range range, int mode) {
  bool purged = false;
  Errno error = Errno::kOk;
  mm.mmap_write_lock(task);
  task.charge(mm.pages().costs().madvise_base);
  VirtAddr at = range.start;
  Vma* vma = mm.find_vma(at);
  while (at < range.end && error == Errno::kOk) {
    if (vma == nullptr || at < vma->start) {
      error = Errno::kENOMEM;
      break;
    }
    const Range part{at, std::min(vma->end, range.end)};
    error = mark_vma(task, mm, vma, part, mode, purged);
    at = part.end;
    if (vma->end <= at) vma = vma->next();
  }
  mm.mmap_write_unlock(task);
  if (error != Errno::kOk) return error;
  return std::uint64_t{purged ? 1U : 0U};
}

// put_user(0, purged): the pointer is tried before anything is changed.  It may lie across
// two pages.
bool can_write_int(Task& task, Process& process, VirtAddr at) {
  const VirtAddr last = at + (sizeof(int) - 1);
  return user_access(task, process, at, Access::kWrite) == Signal::kNone &&
         user_access(task, process, last, Access::kWrite) == Signal::kNone;
}

}  // namespace

bool Vranges::pressure_is_severe(const Task& task) const {
  const PhysMem& phys = kernel_.phys();
  return phys.nr_free_pages(task.node()) < phys.watermarks(task.node()).low;
}

Answer sys_vrange(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  int mode, VirtAddr fourth, int* purged) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const VrangeVersion version = kernel.config().vrange;
  if (version == VrangeVersion::kNone) return Errno::kENOSYS;
  const Scope scope(task, centre::kSysVrange);

  const std::uint64_t page = kernel.profile().geometry.page_size();
  const std::uint64_t bytes = length & ~(page - 1);
  if (!page_aligned(mm, start)) return Errno::kEINVAL;
  if (bytes == 0) return Errno::kEINVAL;
  const Range range{start, start + bytes};
  if (range.end < range.start) return Errno::kEINVAL;
  if (start.v >= kernel.profile().layout.task_size) return Errno::kEINVAL;
  if (mode != kVrangeVolatile && mode != kVrangeNovolatile) return Errno::kEINVAL;
  if (version == VrangeVersion::k7) return vrange_v7(task, mm, range, mode);
  if (version == VrangeVersion::kVma) return vrange_vma(task, mm, range, mode);
  if (fourth.v != 0 && !can_write_int(task, process, fourth)) return Errno::kEFAULT;
  return vrange_v8(task, mm, range, mode, purged);
}

}  // namespace faultline::kernel
