// SPDX-License-Identifier: Apache-2.0
//
// The move of mremap(2): a copy of the VMA at the new place, its page tables moved over,
// the old one unmapped (or, with MREMAP_DONTUNMAP, left empty).
#include <algorithm>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/mremap.h"
#include "kernel_model/mm/vma_ops.h"

namespace faultline::kernel {

namespace {

// copy_vma(): an anonymous VMA that was never faulted in takes the page offset of its new
// place, so that it can merge there.
Vma& copy_vma(Task& task, Mm& mm, const Vma& old, const MremapArgs& args, VirtAddr to) {
  VmaSpec spec = VmaSpec::of(old, {args.old_start, args.old_start + args.old_length},
                             mm.kernel().profile().geometry.page_shift);
  spec.range = {to, to + args.new_length};
  if (old.anonymous && old.anon_vma == nullptr) spec.vm_pgoff = pages_of(mm, to.v);
  if (Vma* merged = vma_merge_new_range(task, mm, spec)) return *merged;
  task.charge(mm.kernel().profile().costs.vma_split_merge);
  return vma_link(task, mm, spec);
}

// The charge of the old pages moves with them: do_munmap must not give it back.
void unmap_uncharged(Task& task, Mm& mm, Range range, bool accounted) {
  if (accounted) mm.kernel().committed_pages += pages_of(mm, range.bytes());
  // Model: the splits at the edges of `range` always succeed; move_vma has left room for
  // them.
  static_cast<void>(do_munmap(task, mm, range.start, range.bytes(), MunmapLock::kKeep));
}

// What stays behind with MREMAP_DONTUNMAP: the VMA, empty and not locked.
void leave_empty(Mm& mm, Range old_range) {
  Vma* const left = mm.vmas.at(old_range.start);
  if (left == nullptr) return;
  if ((left->vm_flags & VM_LOCKED) != 0) mm.locked_vm -= pages_of(mm, left->bytes());
  left->vm_flags &= ~std::uint64_t{VM_LOCKED | VM_LOCKONFAULT};
  if (left->range() == old_range) {
    left->anon_vma = {};
    left->anon_vma_chain = 0;
  }
}

}  // namespace

SysResult<VirtAddr> move_vma(Task& task, Mm& mm, Vma& old, const MremapArgs& args,
                             VirtAddr to) {
  const Scope scope(task, centre::kMoveVma);
  // The worst case is two splits and the copy.
  if (mm.vmas.size() >= mm.kernel().config().max_map_count - 3) return Errno::kENOMEM;
  const bool dontunmap = (args.flags & kMremapDontunmap) != 0;
  const std::uint64_t vm_flags = old.vm_flags;
  const bool accounted = (vm_flags & VM_ACCOUNT) != 0;
  const std::uint64_t added =
      pages_of(mm, args.new_length - (dontunmap ? 0 : args.old_length));
  if (accounted && !vm_enough_memory(mm, added)) return Errno::kENOMEM;

  const Range old_range{args.old_start, args.old_start + args.old_length};
  mm.vma_start_write(task, old);
  Vma& copy = copy_vma(task, mm, old, args, to);
  Vma* const from = mm.vmas.at(args.old_start);  // the copy may have merged with it
  mm.vma_start_write(task, copy);
  mm.process().access_caches.forget();
  mm.pages().move_page_tables(task, *from, args.old_start, copy, to, args.old_length);
  if (mm.process().on_move) mm.process().on_move(args.old_start, to, args.old_length);

  const std::uint64_t pages = pages_of(mm, args.new_length);
  const std::uint64_t hiwater = mm.hiwater_vm;  // both copies at once don't count
  vm_stat_account(mm, vm_flags, static_cast<std::int64_t>(pages));
  if ((vm_flags & VM_LOCKED) != 0) mm.locked_vm += pages;
  if (dontunmap)
    leave_empty(mm, old_range);
  else if (!old_range.empty())
    unmap_uncharged(task, mm, old_range, accounted);
  mm.hiwater_vm = std::max(hiwater, mm.total_vm);
  return to;
}

}  // namespace faultline::kernel
