// SPDX-License-Identifier: Apache-2.0
// The contended paths of the queued spinlock.
#include "sim/spin_lock.h"

#include "sim/check.h"

namespace faultline {
namespace {
constexpr Centre kSlowpath{"native_queued_spin_lock_slowpath", true};
}

SpinLock::~SpinLock() {
  FAULTLINE_CHECK(waiters_.empty());
}

void SpinLock::wait(Task& task) {
  FAULTLINE_CHECK_NE(owner_, &task);
  const Wait waiting(*this, task);
  Waiter me{&task};
  waiters_.push(me);
  {
    const Scope slowpath(task, kSlowpath);
    task.set_waiting_for(stats_->name, owner_);
    task.spin();
    task.set_waiting_for({});
  }
  waiting.count(*this, task);
}

}  // namespace faultline
