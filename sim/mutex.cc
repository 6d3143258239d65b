// SPDX-License-Identifier: Apache-2.0
// The contended paths of the mutex.
#include "sim/mutex.h"

#include "sim/check.h"

namespace faultline {

Mutex::~Mutex() {
  FAULTLINE_CHECK(waiters_.empty());
}

void Mutex::wait(Task& task) {
  FAULTLINE_CHECK_NE(owner_, &task);
  const Time start = task.now();
  const CentreTree::Node* holder = owner_->where();
  Waiter me{&task};
  waiters_.push(me);
  task.set_waiting_for(stats_->name, owner_);
  task.block(TaskState::kLockWait);
  task.set_waiting_for({});
  FAULTLINE_CHECK_EQ(owner_, &task);
  const Duration waited = task.now() - start;
  stats_->write.waited(waited);
  stats_->blame(task.where(), LockMode::kWrite, holder, LockMode::kWrite, waited);
}

void Mutex::hand_over(Task& task) {
  FAULTLINE_CHECK_EQ(owner_, &task);
  Task& next = *waiters_.pop().task;
  own(next, task.now() + costs_.handover);
  engine_->wake(next, held_since_);
}

}  // namespace faultline
