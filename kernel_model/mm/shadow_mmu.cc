// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/shadow_mmu.h"

#include "kernel_model/kernel.h"

namespace faultline::kernel {
namespace {

constexpr Centre kHandleExit{"vmx_handle_exit", true};
constexpr Centre kPageFault{"paging64_page_fault", true};
constexpr Centre kSyncRoots{"kvm_mmu_sync_roots", true};

LockCosts ticket_lock(const arch::Costs& costs) {
  return {.atomic = costs.lock_atomic,
          .handover = costs.lock_handover,
          .handover_waiter = costs.mmu_lock_waiter};
}

}  // namespace

ShadowMmu::ShadowMmu(Kernel& kernel)
    : kernel_(kernel),
      mmu_lock_(kernel.engine(), kernel.engine().locks().of("kvm->mmu_lock"),
                ticket_lock(kernel.profile().costs)) {}

void ShadowMmu::under_lock(Task& task, const Centre& work, Duration hold) {
  mmu_lock_.lock(task);
  task.charge(work, hold);
  mmu_lock_.unlock(task);
}

void ShadowMmu::page_fault(Task& task) {
  const Scope scope(task, kHandleExit);
  const arch::Costs& costs = kernel_.profile().costs;
  task.charge(costs.virt_exit * 2);
  under_lock(task, kPageFault, costs.mmu_lock_fault);
}

void ShadowMmu::sync_roots(Task& task) {
  const Scope scope(task, kHandleExit);
  under_lock(task, kSyncRoots, kernel_.profile().costs.mmu_lock_sync);
}

}  // namespace faultline::kernel
