// SPDX-License-Identifier: Apache-2.0
#include "sim/owned_lock.h"

#include "sim/check.h"

namespace faultline {

void OwnedLock::Wait::count(const OwnedLock& lock, Task& task) const {
  FAULTLINE_CHECK_EQ(lock.owner_, &task);
  const Duration waited = task.now() - start_;
  lock.stats_->write.waited(waited);
  lock.stats_->blame(task.where(), LockMode::kWrite, holder_, LockMode::kWrite, waited);
}

void OwnedLock::hand_over(Task& task, WaitQueue& waiters) {
  FAULTLINE_CHECK_EQ(owner_, &task);
  Task& next = *waiters.pop().task;
  own(next, task.now() + costs_.handover + costs_.handover_waiter * waiters.size());
  engine_->wake(next, held_since_);
}

}  // namespace faultline
