// SPDX-License-Identifier: Apache-2.0
//
// mremap(2) of 6.17 and later: arguments are checked before any VMA is looked up, the VMA
// before anything is unmapped, and a move that doesn't resize may take several VMAs along,
// holes and all.
//
// Stands for: check_mremap_params(), check_prep_vma(), remap_move(), mremap_to()
// (mm/mremap.c, v6.17-6.18).  Model: no userfaultfd, no sealed VMAs, no file with an
// address search of its own.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/mremap.h"
#include "kernel_model/mm/unmapped_area.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

bool implies_new_addr(const MremapArgs& args) {
  return (args.flags & (kMremapFixed | kMremapDontunmap)) != 0;
}

bool overlaps(const MremapArgs& args) {
  return args.old_start.v + args.old_length > args.new_start.v &&
         args.new_start.v + args.new_length > args.old_start.v;
}

Errno check_prep_vma(const MremapArgs& args, const Vma* vma) {
  if (vma == nullptr) return Errno::kEFAULT;
  const bool shrinks = args.new_length < args.old_length;
  if (args.new_length <= args.old_length && !implies_new_addr(args)) return Errno::kOk;
  const bool fixed_extent = (vma->vm_flags & (VM_DONTEXPAND | VM_PFNMAP)) != 0;
  if (args.old_length == 0 && (vma->vm_flags & (VM_SHARED | VM_MAYSHARE)) == 0)
    return Errno::kEINVAL;
  if ((args.flags & kMremapDontunmap) != 0 && fixed_extent) return Errno::kEINVAL;
  // What a shrink takes away may reach beyond the VMA; what is moved may not.
  const std::uint64_t kept = shrinks ? args.new_length : args.old_length;
  if (kept > vma->end - args.old_start) return Errno::kEFAULT;
  if (kept != args.new_length && fixed_extent) return Errno::kEFAULT;
  return Errno::kOk;
}

// Moves what lies in one VMA.
SysResult<VirtAddr> mremap_to(Task& task, Mm& mm, MremapArgs args) {
  const Scope scope(task, centre::kMremapTo);
  if ((args.flags & kMremapFixed) != 0) {
    const Errno error =
        do_munmap(task, mm, args.new_start, args.new_length, MunmapLock::kKeep).error;
    if (error != Errno::kOk) return error;
    // An old length that wraps around lets the target lie on the source.
    if (mm.vmas.at(args.old_start) == nullptr) return Errno::kEFAULT;
  }
  if (args.old_length > args.new_length) {
    const Errno error = do_munmap(task, mm, args.old_start + args.new_length,
                                  args.old_length - args.new_length, MunmapLock::kKeep)
                            .error;
    if (error != Errno::kOk) return error;
    args.old_length = args.new_length;
  }
  Vma* const vma = mm.vmas.at(args.old_start);
  if (vma == nullptr) return Errno::kEFAULT;
  unsigned map_flags = (args.flags & kMremapFixed) != 0 ? unsigned{kMapFixed} : 0U;
  if ((vma->vm_flags & VM_MAYSHARE) != 0) map_flags |= kMapShared;
  const SysResult<VirtAddr> to =
      get_unmapped_area(mm, args.new_start, args.new_length, map_flags);
  if (!to.ok()) return to;
  return move_vma(task, mm, *vma, args, to.value());
}

// A move without a resize: each VMA of the range in turn, the holes between them kept.  The
// first page must be mapped; what fails leaves the VMAs before it moved.
SysResult<VirtAddr> remap_move(Task& task, Mm& mm, const MremapArgs& args) {
  const VirtAddr end = args.old_start + args.old_length;
  VirtAddr at = args.old_start;
  SysResult<VirtAddr> result = Errno::kEFAULT;
  for (bool first = true; at < end; first = false) {
    const Vma* const vma = mm.vmas.find(at);
    if (vma == nullptr || vma->start >= end) break;
    if (first && vma->start > at) return Errno::kEFAULT;
    MremapArgs part = args;
    part.old_start = std::max(vma->start, at);
    part.old_length = part.new_length = std::min(end, vma->end) - part.old_start;
    part.new_start = args.new_start + (part.old_start - args.old_start);
    at = part.old_start + part.old_length;
    if (const Errno error = check_prep_vma(part, vma); error != Errno::kOk) return error;
    const SysResult<VirtAddr> moved = mremap_to(task, mm, part);
    if (!moved.ok()) return moved;
    if (first) result = moved;
  }
  return result;
}

}  // namespace

Errno check_mremap_params(const Mm& mm, const MremapArgs& args) {
  constexpr unsigned kKnown = kMremapMaymove | kMremapFixed | kMremapDontunmap;
  const std::uint64_t task_size = mm.kernel().profile().layout.task_size;
  if ((args.flags & ~kKnown) != 0 || !page_aligned(mm, args.old_start))
    return Errno::kEINVAL;
  if (args.new_length == 0 || args.new_length > task_size) return Errno::kEINVAL;
  if (!implies_new_addr(args)) return Errno::kOk;
  if (args.new_start.v > task_size - args.new_length || !page_aligned(mm, args.new_start))
    return Errno::kEINVAL;
  if ((args.flags & kMremapMaymove) == 0) return Errno::kEINVAL;
  if ((args.flags & kMremapDontunmap) != 0 && args.old_length != args.new_length)
    return Errno::kEINVAL;
  if (overlaps(args)) return Errno::kEINVAL;
  // Room for the splits of a move, checked before anything is unmapped.
  if (mm.vmas.size() + 2 >= mm.kernel().config().max_map_count - 3) return Errno::kENOMEM;
  return Errno::kOk;
}

SysResult<VirtAddr> do_mremap_6_17(Task& task, Mm& mm, const MremapArgs& args,
                                   MunmapResult& result) {
  if ((args.flags & kMremapFixed) != 0 && args.old_length == args.new_length)
    return remap_move(task, mm, args);
  const Vma* const vma = mm.vmas.at(args.old_start);
  if (const Errno error = check_prep_vma(args, vma); error != Errno::kOk) return error;
  if (implies_new_addr(args)) return mremap_to(task, mm, args);
  return mremap_at(task, mm, args, result);
}

}  // namespace faultline::kernel
