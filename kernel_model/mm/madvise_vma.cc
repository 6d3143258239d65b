// SPDX-License-Identifier: Apache-2.0
//
// What advice does to one VMA: see madvise.h.
#include "kernel_model/kernel.h"
#include "kernel_model/mm/collapse.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/madvise.h"
#include "kernel_model/mm/madvise_cold.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {

namespace {

// can_madv_lru_vma(), madvise_dontneed_free_valid_vma(): pages that may be dropped or aged.
bool pages_may_go(const Vma& vma, Madvise advice) {
  if (advice == Madvise::kDontneedLocked) return (vma.vm_flags & VM_PFNMAP) == 0;
  return (vma.vm_flags & (VM_LOCKED | VM_PFNMAP | VM_HUGETLB)) == 0;
}

Errno madvise_dontneed(Task& task, Mm& mm, Vma& vma, Range part, Madvise advice) {
  if (vma.hugetlb && (vma.vm_flags & VM_LOCKED) == 0)
    return hugetlb_dontneed(task, mm, vma, part);
  if (!pages_may_go(vma, advice)) return Errno::kEINVAL;
  const Scope scope(task, centre::kMadviseDontneed);
  if ((vma.vm_flags & VM_SHARED) == 0) mm.process().discarded(part);
  mm.pages().zap_page_range(task, vma, part, ZapFor::kDontneed);
  return Errno::kOk;
}

// The pages would have to be kept longer than memory lasts: 4.5 to 4.11 without room to
// swap, or the fallback that was proposed with the patches, which asks for half as much
// again as the reserve.
bool frees_at_once(Mm& mm) {
  Kernel& kernel = mm.kernel();
  if (kernel.config().madv_free == MadvFreeRule::k4_5 &&
      kernel.mm_shared().swap.free_pages() == 0)
    return true;
  if (!kernel.config().madv_free_falls_back) return false;
  std::uint64_t reserve = 0;
  for (int node = 0; node < kernel.phys().nodes(); ++node)
    reserve += kernel.phys().watermarks(node).min;
  return kernel.phys().nr_free_pages() < reserve + reserve / 2;
}

Errno madvise_free(Task& task, Mm& mm, Vma& vma, Range part) {
  if (!pages_may_go(vma, Madvise::kFree) || !vma.anonymous) return Errno::kEINVAL;
  if (frees_at_once(mm)) return madvise_dontneed(task, mm, vma, part, Madvise::kDontneed);
  mm.pages().madvise_free(task, part);
  return Errno::kOk;
}

// mmap_lock was given up meanwhile: `vma` becomes whatever lies last in the part now.
Errno collapse(Task& task, Mm& mm, Vma*& vma, Range part) {
  const Errno error = madvise_collapse(task, mm, *vma, part);
  vma = mm.vmas.last_below(part.end);
  return vma == nullptr && error == Errno::kOk ? Errno::kENOMEM : error;
}

Errno madvise_cold(Task& task, Mm& mm, const Vma& vma, Range part, Madvise advice) {
  if (!pages_may_go(vma, advice)) return Errno::kEINVAL;
  if (!vma.anonymous) return Errno::kOk;
  madvise_cold_or_pageout(task, mm, part,
                          advice == Madvise::kPageout ? Reclaim::kNow : Reclaim::kNo);
  return Errno::kOk;
}

// MADV_REMOVE punches holes into shared files only.
Errno madvise_remove(Task& task, Mm& mm, Vma& vma, Range part) {
  if ((vma.vm_flags & VM_LOCKED) != 0 || vma.anonymous) return Errno::kEINVAL;
  if ((vma.vm_flags & (VM_SHARED | VM_WRITE)) != (VM_SHARED | VM_WRITE))
    return Errno::kEACCES;
  if (!vma.file) return Errno::kEINVAL;
  // vfs_fallocate(FALLOC_FL_PUNCH_HOLE): mapped pages go everywhere.
  // Model: mmap_lock stays held.
  const unsigned shift = mm.kernel().profile().geometry.page_shift;
  const std::uint64_t first = vma.linear_page_index(part.start, shift);
  unmap_mapping_range(task, mm.kernel(), *vma.file, first, first + (part.bytes() >> shift));
  vma.file->remove_range(first, first + (part.bytes() >> shift), task.cpu());
  return Errno::kOk;
}

// madvise_update_vma()
Errno update_vma(Task& task, Mm& mm, Vma*& vma, Range part, std::uint64_t new_flags) {
  if (new_flags == vma->vm_flags) return Errno::kOk;
  if (const Errno error = hugetlb_check_split(task, mm, *vma, part); error != Errno::kOk)
    return error;
  const Scope scope(task, centre::kMadviseVmaBehavior);
  VmaSpec spec = VmaSpec::of(*vma, part, mm.kernel().profile().geometry.page_shift);
  spec.vm_flags = new_flags;
  Vma* const changed = vma_modify(task, mm, *vma, spec);
  if (changed == nullptr) return Errno::kEAGAIN;  // ENOMEM is kept for holes
  vma = changed;
  return Errno::kOk;
}

}  // namespace

bool advice_known(const Kernel& kernel, Madvise advice) {
  switch (advice) {
    case Madvise::kNormal:
    case Madvise::kRandom:
    case Madvise::kSequential:
    case Madvise::kWillneed:
    case Madvise::kDontneed:
    case Madvise::kRemove:
    case Madvise::kDontfork:
    case Madvise::kDofork:
    case Madvise::kDontdump:
    case Madvise::kDodump:
      return true;
    case Madvise::kHugepage:
    case Madvise::kNohugepage:
      return kernel.profile().geometry.has_thp;
    case Madvise::kWipeonfork:
    case Madvise::kKeeponfork:
      return kernel.version() >= 4014;
    case Madvise::kPopulateRead:
    case Madvise::kPopulateWrite:
      return kernel.version() >= 5014;
    case Madvise::kDontneedLocked:
      return kernel.version() >= 5018;
    case Madvise::kGuardInstall:
    case Madvise::kGuardRemove:
      return kernel.version() >= 6013;
    case Madvise::kFree:
      return kernel.version() >= 4005;
    case Madvise::kCollapse:
      return kernel.version() >= 6001 && kernel.profile().geometry.has_thp;
    case Madvise::kCold:
    case Madvise::kPageout:
      return kernel.version() >= 5004;
  }
  return false;
}

AdviceLock advice_lock(const Kernel& kernel, Madvise advice) {
  switch (advice) {
    case Madvise::kDontneed:
    case Madvise::kDontneedLocked:
    case Madvise::kFree:
      return kernel.config().madvise_vma_lock ? AdviceLock::kVmaRead : AdviceLock::kRead;
    case Madvise::kRemove:
    case Madvise::kWillneed:
    case Madvise::kCold:
    case Madvise::kPageout:
    case Madvise::kPopulateRead:
    case Madvise::kPopulateWrite:
    case Madvise::kCollapse:
    case Madvise::kGuardInstall:
    case Madvise::kGuardRemove:
      return AdviceLock::kRead;
    default:
      return AdviceLock::kWrite;
  }
}

std::optional<SysResult<std::uint64_t>> advised_flags(const Vma& vma, Madvise advice) {
  using Flags = SysResult<std::uint64_t>;
  const std::uint64_t flags = vma.vm_flags;
  const auto without = [flags](std::uint64_t bits) { return flags & ~bits; };
  switch (advice) {
    case Madvise::kNormal:
      return Flags{without(VM_RAND_READ | VM_SEQ_READ)};
    case Madvise::kSequential:
      return Flags{without(VM_RAND_READ) | VM_SEQ_READ};
    case Madvise::kRandom:
      return Flags{without(VM_SEQ_READ) | VM_RAND_READ};
    case Madvise::kDontfork:
      return Flags{flags | VM_DONTCOPY};
    case Madvise::kDofork:
      if ((flags & VM_IO) != 0) return Flags{Errno::kEINVAL};
      return Flags{without(VM_DONTCOPY)};
    case Madvise::kWipeonfork:
      if (!vma.anonymous || (flags & VM_SHARED) != 0) return Flags{Errno::kEINVAL};
      return Flags{flags | VM_WIPEONFORK};
    case Madvise::kKeeponfork:
      return Flags{without(VM_WIPEONFORK)};
    case Madvise::kDontdump:
      return Flags{flags | VM_DONTDUMP};
    case Madvise::kDodump:
      if ((flags & VM_HUGETLB) == 0 && (flags & kVmSpecial) != 0)
        return Flags{Errno::kEINVAL};
      return Flags{without(VM_DONTDUMP)};
    case Madvise::kHugepage:
      return Flags{without(VM_NOHUGEPAGE) | VM_HUGEPAGE};
    case Madvise::kNohugepage:
      return Flags{without(VM_HUGEPAGE) | VM_NOHUGEPAGE};
    default:
      return std::nullopt;
  }
}

Errno madvise_vma(Task& task, Mm& mm, Vma*& vma, Range part, Madvise advice) {
  if (const auto flags = advised_flags(*vma, advice)) {
    if (!flags->ok()) return flags->error();
    const Errno error = update_vma(task, mm, vma, part, flags->value());
    // hugepage_madvise() -> khugepaged_enter_vma()
    if (error == Errno::kOk && advice == Madvise::kHugepage)
      mm.pages().khugepaged_enter_vma(task, *vma);
    return error;
  }
  switch (advice) {
    case Madvise::kDontneed:
    case Madvise::kDontneedLocked:
      return madvise_dontneed(task, mm, *vma, part, advice);
    case Madvise::kFree:
      return madvise_free(task, mm, *vma, part);
    case Madvise::kCollapse:
      return collapse(task, mm, vma, part);
    case Madvise::kCold:
    case Madvise::kPageout:
      return madvise_cold(task, mm, *vma, part, advice);
    case Madvise::kRemove:
      return madvise_remove(task, mm, *vma, part);
    case Madvise::kGuardInstall:
      return madvise_guard_install(task, mm, *vma, part);
    case Madvise::kGuardRemove:
      return madvise_guard_remove(task, mm, *vma, part);
    case Madvise::kWillneed:
      return Errno::kOk;  // Model: nothing is swapped out or on disk
    default:
      return Errno::kEINVAL;
  }
}

}  // namespace faultline::kernel
