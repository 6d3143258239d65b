// SPDX-License-Identifier: Apache-2.0
//
// The address space of a process: see mm.h.
#include "kernel_model/mm/mm.h"

#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/vrange.h"

namespace faultline::kernel {

namespace {

// Per-VMA locks are there if the configuration has them and this architecture's had come by
// then.
bool vma_locks_on(const KernelConfig& config, const arch::Profile& profile) {
  if (profile.per_vma_lock_since.empty()) return false;
  unsigned rules_of = 0;
  switch (config.per_vma_lock) {
    case VmaLockRule::kNo:
      return false;
    case VmaLockRule::k6_4:
      rules_of = 6004;
      break;
    case VmaLockRule::k6_8:
      rules_of = 6008;
      break;
    case VmaLockRule::k6_12:
      rules_of = 6012;
      break;
    case VmaLockRule::k6_18:
      rules_of = 6018;
      break;
  }
  // 6.4's rules hold until 6.7.
  if (config.per_vma_lock == VmaLockRule::k6_4) rules_of = 6007;
  return KernelConfig::kernel_version(profile.per_vma_lock_since) <= rules_of;
}

}  // namespace

Mm::Mm(Process& process)
    : vmas(process.kernel().config().stack_guard_gap *
           process.kernel().profile().geometry.page_size()),
      process_(process) {
  Kernel& kernel = process.kernel();
  Engine& engine = kernel.engine();
  const LockCosts costs = kernel.lock_costs();
  mmap_lock_ = std::make_unique<RwSem>(engine, engine.locks().of("mmap_lock"), costs,
                                       kernel.config().rwsem);
  page_table_lock_ =
      std::make_unique<SpinLock>(engine, engine.locks().of("mm->page_table_lock"), costs);
  if (vma_locks_on(kernel.config(), kernel.profile()))
    vma_lock_stats_ = &engine.locks().of("vma->vm_lock");
  pages_ = std::make_unique<PageTables>(kernel, *this);
  if (has_vrange_tree(kernel.config().vrange))
    vranges_ = std::make_unique<VrangeRoot>(*this);
}

Mm::~Mm() = default;

void Mm::mmap_write_unlock(Task& task) {
  ++mm_lock_seq;
  mmap_lock_->up_write(task);
}

void Mm::mmap_write_downgrade(Task& task) {
  ++mm_lock_seq;
  mmap_lock_->downgrade_write(task);
}

}  // namespace faultline::kernel
