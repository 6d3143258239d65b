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
  const Wait waiting(*this, task);
  Waiter me{&task};
  waiters_.push(me);
  task.set_waiting_for(stats_->name, owner_);
  task.block(TaskState::kLockWait);
  task.set_waiting_for({});
  waiting.count(*this, task);
}

}  // namespace faultline
