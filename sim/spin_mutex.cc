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
  const Time start = task.now();
  const CentreTree::Node* const holder = owner_->where();
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
  const Duration waited = task.now() - start;
  stats_->write.waited(waited);
  stats_->blame(task.where(), LockMode::kWrite, holder, LockMode::kWrite, waited);
}

void SpinningMutex::release(Task& task) {
  FAULTLINE_CHECK_EQ(owner_, &task);
  if (!spinners_.empty()) {
    Task& next = *spinners_.pop().task;
    own(next, task.now() + costs_.handover);
    watch_owner();
    engine_->wake(next, held_since_);
    return;
  }
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
