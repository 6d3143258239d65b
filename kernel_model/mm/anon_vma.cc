// SPDX-License-Identifier: Apache-2.0
//
// The first fault of a VMA gives it an anon_vma: a neighbour's if the two could be one VMA,
// so that a later merge isn't lost, or a new one.
//
// Stands for: __anon_vma_prepare() (mm/rmap.c), find_mergeable_anon_vma() (mm/mmap.c,
// mm/vma.c), v4.15-6.18.
#include "kernel_model/mm/anon_vma.h"

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm_shared.h"

namespace faultline::kernel {
namespace {

// anon_vma_compatible(): `below` and `above` could be one VMA, if only mprotect made them
// differ.
bool anon_vma_compatible(const Vma& below, const Vma& above, unsigned page_shift) {
  const std::uint64_t differ =
      (below.vm_flags ^ above.vm_flags) & ~(kVmAccessFlags | kVmSticky);
  return below.end == above.start && below.anonymous && above.anonymous && differ == 0 &&
         above.vm_pgoff == below.vm_pgoff + (below.bytes() >> page_shift);
}

bool reusable(const Vma& neighbour) {
  return neighbour.anon_vma && neighbour.anon_vma_chain == 1;
}

AnonVmaRef find_mergeable_anon_vma(const Vma& vma, unsigned page_shift) {
  const Vma* next = vma.next();
  if (next != nullptr && anon_vma_compatible(vma, *next, page_shift) && reusable(*next))
    return next->anon_vma;
  const Vma* prev = vma.prev();
  if (prev != nullptr && anon_vma_compatible(*prev, vma, page_shift) && reusable(*prev))
    return prev->anon_vma;
  return {};
}

}  // namespace

FaultResult anon_vma_prepare(Fault& fault) {
  if (fault.vma.anon_vma) return FaultResult::kDone;
  // 6.12: under the VMA lock the neighbours may only be looked at with mmap_lock.
  if (fault.under_vma_lock && !fault.mm.mmap_lock().down_read_trylock(fault.task))
    return FaultResult::kRetry;
  {
    Ptl publish(fault.task, fault.pages, nullptr);
    if (!fault.vma.anon_vma) {
      AnonVmaRef found =
          find_mergeable_anon_vma(fault.vma, fault.pages.geometry().page_shift);
      fault.vma.anon_vma = found ? found : fault.kernel.mm_shared().new_anon_vma();
      fault.vma.anon_vma_chain = 1;
    }
  }
  if (fault.under_vma_lock) fault.mm.mmap_lock().up_read(fault.task);
  return FaultResult::kDone;
}

}  // namespace faultline::kernel
