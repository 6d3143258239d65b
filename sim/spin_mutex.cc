// SPDX-License-Identifier: Apache-2.0
// The contended paths of the kernel's mutex.
#include "sim/spin_mutex.h"

#include "sim/check.h"

namespace faultline {
namespace {

constexpr Centre kSlowpath{"__mutex_lock_slowpath", true};

}  // namespace

SpinningMutex::~SpinningMutex() {
  FAULTLINE_CHECK(spinners_.empty() && sleepers_.empty());
}

void SpinningMutex::wait(Task& task) {
  FAULTLINE_CHECK_NE(owner_, &task);
  const Wait waiting(*this, task);
  const Scope scope(task, kSlowpath);
  Waiter me{&task};
  while (owner_ != &task) {
    if (owner_ == nullptr) {
      own(task, task.now());
      break;
    }
    task.set_waiting_for(stats_->name, owner_);
    me.next = nullptr;
    if (spin_ == MutexSpin::kYes && engine_->on_cpu(*owner_)) {
      watch_owner();
      spinners_.push(me);
      task.spin();
    } else {
      sleepers_.push(me);
      task.block(TaskState::kLockWait);
    }
  }
  task.set_waiting_for({});
  waiting.count(*this, task);
}

void SpinningMutex::release(Task& task) {
  if (!spinners_.empty()) {
    hand_over(task, spinners_);
    watch_owner();
    return;
  }
  FAULTLINE_CHECK_EQ(owner_, &task);
  owner_ = nullptr;
  watch_owner();
  if (!sleepers_.empty()) engine_->wake(*sleepers_.pop().task, task.now());
}

// Of an owner for whom nobody spins no news are wanted.
void SpinningMutex::watch_owner() {
  if (watched_ == owner_) return;
  if (watched_ != nullptr) engine_->unwatch(*watched_, *this);
  watched_ = owner_;
  if (watched_ != nullptr) engine_->watch(*watched_, *this);
}

// The owner has lost its CPU: spinners look again, and sleep.
void SpinningMutex::on_cpu_change(Task& task, bool on_cpu) {
  if (on_cpu || owner_ != &task) return;
  while (!spinners_.empty()) engine_->wake(*spinners_.pop().task, engine_->now());
}

}  // namespace faultline
