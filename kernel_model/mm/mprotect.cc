// SPDX-License-Identifier: Apache-2.0
//
// mprotect(2): access rights of part of VMAs change, which splits and merges them.
//
// Stands for: do_mprotect_pkey(), mprotect_fixup() (mm/mprotect.c, v4.15-6.18).
#include <algorithm>
#include <optional>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

inline constexpr unsigned kProtSem = 8, kProtGrowsdown = 0x01000000,
                          kProtGrowsup = 0x02000000;

// A private mapping that becomes writable is charged; it stays charged, except (6.7) if it
// is made read-only before any fault.  Answers the pages charged now, or nothing if
// refused.
std::optional<std::uint64_t> charge(Mm& mm, const Vma& vma, std::uint64_t pages,
                                    std::uint64_t& new_flags) {
  constexpr std::uint64_t kCharged =
      VM_ACCOUNT | VM_WRITE | VM_HUGETLB | VM_SHARED | VM_NORESERVE;
  if ((new_flags & VM_WRITE) != 0) {
    if ((vma.vm_flags & kCharged) != 0) return 0;
    if (!vm_enough_memory(mm, pages)) return std::nullopt;
    new_flags |= VM_ACCOUNT;
    return pages;
  }
  if (mm.kernel().config().mprotect_uncharges && (vma.vm_flags & VM_ACCOUNT) != 0 &&
      vma.anonymous && vma.anon_vma == nullptr)
    new_flags &= ~std::uint64_t{VM_ACCOUNT};
  return 0;
}

// Gives `part` of `vma` the new flags; `vma` becomes the VMA that holds it then.
Errno mprotect_fixup(Task& task, Mm& mm, Vma*& vma, Range part, std::uint64_t new_flags) {
  const std::uint64_t old_flags = vma->vm_flags;
  if (new_flags == old_flags) return Errno::kOk;
  const Scope scope(task, centre::kMprotectFixup);
  if (const Errno error = hugetlb_check_split(task, mm, *vma, part); error != Errno::kOk)
    return error;
  const std::uint64_t pages = pages_of(mm, part.bytes());
  const auto charged = charge(mm, *vma, pages, new_flags);
  if (!charged) return Errno::kENOMEM;

  VmaSpec spec = VmaSpec::of(*vma, part, mm.kernel().profile().geometry.page_shift);
  spec.vm_flags = new_flags;
  Vma* const changed = vma_modify(task, mm, *vma, spec);
  if (changed == nullptr) {
    vm_unacct_memory(mm.kernel(), *charged);
    return Errno::kENOMEM;
  }
  vma = changed;
  if ((old_flags & VM_ACCOUNT) != 0 && (new_flags & VM_ACCOUNT) == 0)
    vm_unacct_memory(mm.kernel(), pages);
  mm.process().access_caches.forget();
  mm.pages().change_protection(task, *vma, part, new_flags);
  vm_stat_account(mm, old_flags, -static_cast<std::int64_t>(pages));
  vm_stat_account(mm, new_flags, static_cast<std::int64_t>(pages));
  // Locked memory is all there: what becomes writable is copied now.
  if ((old_flags & (VM_WRITE | VM_SHARED | VM_LOCKED)) == VM_LOCKED &&
      (new_flags & VM_WRITE) != 0)
    static_cast<void>(populate_vma_page_range(task, mm, *vma, part));
  return Errno::kOk;
}

Errno do_mprotect(Task& task, Mm& mm, Range range, unsigned prot) {
  Vma* vma = mm.vmas.find(range.start);
  if (vma == nullptr) return Errno::kENOMEM;
  if ((prot & kProtGrowsdown) != 0) {
    if (vma->start >= range.end) return Errno::kENOMEM;
    if ((vma->vm_flags & VM_GROWSDOWN) == 0) return Errno::kEINVAL;
    range.start = vma->start;
  } else {
    if (vma->start > range.start) return Errno::kENOMEM;
    if ((prot & kProtGrowsup) != 0) return Errno::kEINVAL;
  }
  for (VirtAddr at = range.start;;) {
    const std::uint64_t new_flags =
        (prot & kVmAccessFlags) | (vma->vm_flags & ~kVmAccessFlags);
    // VM_MAYREAD and so on lie four bits above VM_READ.
    if ((new_flags & ~(new_flags >> 4) & kVmAccessFlags) != 0) return Errno::kEACCES;
    const VirtAddr end = std::min(vma->end, range.end);
    if (const Errno error = mprotect_fixup(task, mm, vma, {at, end}, new_flags);
        error != Errno::kOk)
      return error;
    at = std::max(end, vma->end);
    if (at >= range.end) return Errno::kOk;
    vma = vma->next();
    if (vma == nullptr || vma->start != at) return Errno::kENOMEM;
  }
}

}  // namespace

SysStatus sys_mprotect(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                       unsigned prot) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMprotect);

  if ((prot & (kProtGrowsdown | kProtGrowsup)) == (kProtGrowsdown | kProtGrowsup))
    return Errno::kEINVAL;
  if (!page_aligned(mm, start)) return Errno::kEINVAL;
  if (length == 0) return Errno::kOk;
  const Range range{start, start + page_align(mm, length)};
  if (range.empty()) return Errno::kENOMEM;
  if ((prot & ~(kProtRead | kProtWrite | kProtExec | kProtSem | kProtGrowsdown |
                kProtGrowsup)) != 0)
    return Errno::kEINVAL;

  mm.mmap_write_lock(task);
  task.charge(kernel.profile().costs.mprotect_base);
  const Errno error = do_mprotect(task, mm, range, prot);
  mm.mmap_write_unlock(task);
  return error;
}

}  // namespace faultline::kernel
