// SPDX-License-Identifier: Apache-2.0
//
// mremap(2): a mapping shrinks, grows where it is, or moves.
#include "kernel_model/mm/mremap.h"

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/mm/unmapped_area.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// Checks that need no lock; see remap_move.cc for those of 6.17.
Errno check_arguments(const Mm& mm, const MremapArgs& args) {
  constexpr unsigned kAll = kMremapMaymove | kMremapFixed | kMremapDontunmap;
  const bool has_dontunmap = mm.kernel().version() >= 5007;
  const unsigned known = has_dontunmap ? kAll : kAll & ~unsigned{kMremapDontunmap};
  if ((args.flags & ~known) != 0) return Errno::kEINVAL;
  if ((args.flags & kMremapFixed) != 0 && (args.flags & kMremapMaymove) == 0)
    return Errno::kEINVAL;
  if ((args.flags & kMremapDontunmap) != 0 &&
      ((args.flags & kMremapMaymove) == 0 || args.old_length != args.new_length))
    return Errno::kEINVAL;
  if (!page_aligned(mm, args.old_start)) return Errno::kEINVAL;
  if (args.new_length == 0) return Errno::kEINVAL;
  return Errno::kOk;
}

// Checks of a new address.
Errno check_target(const Mm& mm, const MremapArgs& args) {
  const std::uint64_t task_size = mm.kernel().profile().layout.task_size;
  if (!page_aligned(mm, args.new_start)) return Errno::kEINVAL;
  if (args.new_length > task_size || args.new_start.v > task_size - args.new_length)
    return Errno::kEINVAL;
  if (args.old_start.v + args.old_length > args.new_start.v &&
      args.new_start.v + args.new_length > args.old_start.v)
    return Errno::kEINVAL;
  // Room for the splits of a move, checked before anything is unmapped.
  if (mm.vmas.size() + 2 >= mm.kernel().config().max_map_count - 3) return Errno::kENOMEM;
  return Errno::kOk;
}

// MREMAP_FIXED and MREMAP_DONTUNMAP.
SysResult<VirtAddr> mremap_to(Task& task, Mm& mm, MremapArgs args) {
  const Scope scope(task, centre::kMremapTo);
  if (const Errno error = check_target(mm, args); error != Errno::kOk) return error;
  if ((args.flags & kMremapFixed) != 0) {
    const Errno error =
        do_munmap(task, mm, args.new_start, args.new_length, MunmapLock::kKeep).error;
    if (error != Errno::kOk) return error;
  }
  if (args.old_length > args.new_length) {
    const Errno error = do_munmap(task, mm, args.old_start + args.new_length,
                                  args.old_length - args.new_length, MunmapLock::kKeep)
                            .error;
    if (error != Errno::kOk) return error;
    args.old_length = args.new_length;
  }
  const SysResult<Vma*> vma = vma_to_resize(mm, args);
  if (!vma.ok()) return vma.error();
  unsigned map_flags = (args.flags & kMremapFixed) != 0 ? unsigned{kMapFixed} : 0U;
  if ((vma.value()->vm_flags & VM_MAYSHARE) != 0) map_flags |= kMapShared;
  const SysResult<VirtAddr> to =
      get_unmapped_area(mm, args.new_start, args.new_length, map_flags);
  if (!to.ok()) return to;
  return move_vma(task, mm, *vma.value(), args, to.value());
}

// Grows `vma`, which ends with the old range, where it is; false if something is in the
// way.
bool vma_expandable(const Mm& mm, const Vma& vma, std::uint64_t delta) {
  const std::uint64_t end = vma.end.v + delta;
  if (end < vma.end.v || end > mm.kernel().profile().layout.task_size) return false;
  return vma.next() == nullptr || end <= vma.next()->start.v;
}

SysResult<VirtAddr> expand_in_place(Task& task, Mm& mm, Vma& vma, const MremapArgs& args) {
  const std::uint64_t delta = args.new_length - args.old_length;
  const std::uint64_t pages = pages_of(mm, delta);
  const std::uint64_t vm_flags = vma.vm_flags;
  if ((vm_flags & VM_ACCOUNT) != 0 && !vm_enough_memory(mm, pages)) return Errno::kENOMEM;
  const VirtAddr old_end = vma.end;
  mm.vma_start_write(task, vma);
  // 6.1 and later: the extension merges like a new range, which may close the gap to the
  // next VMA.
  VmaSpec spec = VmaSpec::of(vma, {old_end, old_end + delta},
                             mm.kernel().profile().geometry.page_shift);
  if (mm.kernel().version() < 6001 || vma_merge_new_range(task, mm, spec) == nullptr)
    mm.vmas.set_range(vma, {vma.start, old_end + delta});
  vm_stat_account(mm, vm_flags, static_cast<std::int64_t>(pages));
  if ((vm_flags & VM_LOCKED) != 0) mm.locked_vm += pages;
  return args.old_start;
}

SysResult<VirtAddr> grow(Task& task, Mm& mm, const MremapArgs& args) {
  const SysResult<Vma*> found = vma_to_resize(mm, args);
  if (!found.ok()) return found.error();
  Vma& vma = *found.value();
  if (args.old_start + args.old_length == vma.end &&
      vma_expandable(mm, vma, args.new_length - args.old_length))
    return expand_in_place(task, mm, vma, args);
  if ((args.flags & kMremapMaymove) == 0) return Errno::kENOMEM;
  const unsigned map_flags = (vma.vm_flags & VM_MAYSHARE) != 0 ? unsigned{kMapShared} : 0U;
  const SysResult<VirtAddr> to =
      get_unmapped_area(mm, VirtAddr{}, args.new_length, map_flags);
  if (!to.ok()) return to;
  return move_vma(task, mm, vma, args, to.value());
}

// Always allowed, without a look at the VMAs it shrinks.
SysResult<VirtAddr> shrink(Task& task, Mm& mm, const MremapArgs& args,
                           MunmapResult& result) {
  if (args.old_length == args.new_length) return args.old_start;
  result = do_munmap(task, mm, args.old_start + args.new_length,
                     args.old_length - args.new_length, MunmapLock::kDowngrade);
  if (result.error != Errno::kOk) return result.error;
  return args.old_start;
}

SysResult<VirtAddr> do_mremap(Task& task, Mm& mm, const MremapArgs& args,
                              MunmapResult& result) {
  // From 5.16 the first page must be mapped, even to shrink.
  if (mm.kernel().version() >= 5016 && mm.vmas.at(args.old_start) == nullptr)
    return Errno::kEFAULT;
  if ((args.flags & (kMremapFixed | kMremapDontunmap)) != 0)
    return mremap_to(task, mm, args);
  return mremap_at(task, mm, args, result);
}

}  // namespace

SysResult<VirtAddr> mremap_at(Task& task, Mm& mm, const MremapArgs& args,
                              MunmapResult& result) {
  if (args.old_length >= args.new_length) return shrink(task, mm, args, result);
  return grow(task, mm, args);
}

SysResult<Vma*> vma_to_resize(Mm& mm, const MremapArgs& args) {
  Vma* const vma = mm.vmas.at(args.old_start);
  if (vma == nullptr) return Errno::kEFAULT;
  if (vma->hugetlb) return Errno::kEINVAL;  // Model: nor does it move (5.16)
  // An old length of 0 duplicates a shared mapping; a private one can't be in two places.
  if (args.old_length == 0 && (vma->vm_flags & (VM_SHARED | VM_MAYSHARE)) == 0)
    return Errno::kEINVAL;
  if ((args.flags & kMremapDontunmap) != 0 &&
      (vma->vm_flags & (VM_DONTEXPAND | VM_PFNMAP)) != 0)
    return Errno::kEINVAL;
  if (args.old_length > vma->end - args.old_start) return Errno::kEFAULT;
  if (args.old_length == args.new_length) return vma;
  if ((vma->vm_flags & (VM_DONTEXPAND | VM_PFNMAP)) != 0) return Errno::kEFAULT;
  return vma;
}

SysResult<VirtAddr> sys_mremap(Task& task, Process& process, VirtAddr old_start,
                               std::uint64_t old_length, std::uint64_t new_length,
                               unsigned flags, VirtAddr new_start) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMremap);

  MremapArgs args{old_start, old_length, new_length, flags, new_start};
  const bool checks_first = kernel.version() >= 6017;
  // Until 6.16 DONTUNMAP compared the lengths as they were given.
  if (!checks_first && (flags & kMremapDontunmap) != 0 && old_length != new_length)
    return Errno::kEINVAL;
  args.old_length = page_align(mm, old_length);
  args.new_length = page_align(mm, new_length);
  const Errno error =
      checks_first ? check_mremap_params(mm, args) : check_arguments(mm, args);
  if (error != Errno::kOk) return error;

  mm.mmap_write_lock(task);
  task.charge(kernel.profile().costs.mmap_base);
  MunmapResult result;
  const SysResult<VirtAddr> answer = checks_first ? do_mremap_6_17(task, mm, args, result)
                                                  : do_mremap(task, mm, args, result);
  const bool populate = answer.ok() && args.new_length > args.old_length &&
                        (mm.vmas.at(answer.value())->vm_flags & VM_LOCKED) != 0;
  unlock_after_munmap(task, mm, result);
  if (populate)
    static_cast<void>(mm_populate(
        task, mm, {answer.value() + args.old_length, answer.value() + args.new_length}));
  return answer;
}

}  // namespace faultline::kernel
