// SPDX-License-Identifier: Apache-2.0
//
// A guest whose host keeps shadow page tables.
//
// The hardware walks tables that the host builds from the guest's.  A guest that faults on
// an empty entry exits twice: the host finds nothing in the guest's tables either and
// injects the fault, and when the guest has mapped the page and tries again, the host
// copies the entry.  The copy is made under kvm->mmu_lock, of which a virtual machine has
// one: that is what all vCPUs queue for.
//
// Stands for: arch/x86/kvm/mmu.c and paging_tmpl.h (FNAME(page_fault), FNAME(fetch),
// kvm_mmu_sync_roots), v3.8, on a host whose spinlocks are ticket locks (arch/x86, up to
// 4.1).  Model: entries that the guest takes away or changes are seen at its next TLB
// flush (page tables of the last level are "unsync" in between), whose sync includes the
// one exit for the first write to a table after it; how long the lock is held doesn't
// depend on what is in the tables; the host has a CPU for each vCPU.
#pragma once

#include "sim/spin_lock.h"

namespace faultline::kernel {

class Kernel;

class ShadowMmu {
 public:
  explicit ShadowMmu(Kernel& kernel);
  // The guest's access faulted and its handler is done: the exits, and the host's entry.
  void page_fault(Task& task);
  // The guest writes CR3 to flush its TLB: its tables are compared with the copies.
  void sync_roots(Task& task);
  [[nodiscard]] const SpinLock& mmu_lock() const { return mmu_lock_; }

 private:
  void under_lock(Task& task, const Centre& work, Duration hold);

  Kernel& kernel_;
  SpinLock mmu_lock_;
};

}  // namespace faultline::kernel
