// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/model_lock.h"

#include "sim/check.h"
#include "sim/engine.h"

namespace faultline::alloc {
namespace {
constexpr Centre kSysFutex{"sys_futex", true}, kFutexWait{"futex_wait", true},
    kFutexWake{"futex_wake", true};
}

LockStats& ModelLock::stats(Task& task) {
  if (stats_ == nullptr) stats_ = &task.engine().locks().of(name_);
  return *stats_;
}

void ModelLock::own(Task& task) {
  owner_ = &task;
  held_since_ = task.now();
  ++stats(task).write.acquired;
}

bool ModelLock::try_lock(Task& task, kernel::Process& process) {
  task.sync();
  const bool free = state_ == State::kFree;
  if (free) {
    state_ = State::kTaken;
    own(task);
  }
  task.charge(process.kernel().profile().costs.lock_atomic);
  return free;
}

void ModelLock::lock(Task& task, kernel::Process& process) {
  if (!try_lock(task, process)) lock_slow(task, process);
}

void ModelLock::lock_slow(Task& task, kernel::Process& process) {
  const Time start = task.now();
  // It may have been freed since the failed attempt.
  const CentreTree::Node* const holder = owner_ != nullptr ? owner_->where() : nullptr;
  for (;;) {
    task.sync();
    const State was = state_;
    state_ = State::kContended;
    if (was == State::kFree) break;
    FAULTLINE_CHECK_NE(owner_, &task);
    futex_wait(task, process);
  }
  own(task);
  const Duration waited = task.now() - start;
  stats(task).write.waited(waited);
  if (holder != nullptr)
    stats(task).blame(task.where(), LockMode::kWrite, holder, LockMode::kWrite, waited);
}

// Sleeps unless the word has changed meanwhile.
void ModelLock::futex_wait(Task& task, kernel::Process& process) {
  const auto& kernel = process.kernel();
  const Scope entry(task, kernel.centres().syscall_entry);
  const Scope call(task, kSysFutex);
  const Scope wait(task, kFutexWait);
  task.charge(kernel.profile().costs.syscall_entry_exit +
              kernel.profile().costs.futex_call);
  task.sync();
  if (state_ != State::kContended) return;
  Waiter me{&task};
  sleepers_.push(me);
  task.set_waiting_for(name_, owner_);
  task.block(TaskState::kLockWait);
  task.set_waiting_for({});
}

void ModelLock::futex_wake(Task& task, kernel::Process& process) {
  const auto& kernel = process.kernel();
  const Scope entry(task, kernel.centres().syscall_entry);
  const Scope call(task, kSysFutex);
  const Scope wake(task, kFutexWake);
  task.charge(kernel.profile().costs.syscall_entry_exit +
              kernel.profile().costs.futex_call);
  task.sync();
  if (!sleepers_.empty()) task.engine().wake(*sleepers_.pop().task, task.now());
}

void ModelLock::reset() {
  FAULTLINE_CHECK(sleepers_.empty());
  state_ = State::kFree;
  owner_ = nullptr;
}

void ModelLock::unlock(Task& task, kernel::Process& process) {
  FAULTLINE_CHECK_EQ(owner_, &task);
  task.charge(process.kernel().profile().costs.lock_atomic);
  task.sync();
  stats(task).write.held(task.now() - held_since_);
  const State was = state_;
  state_ = State::kFree;
  owner_ = nullptr;
  if (was == State::kContended) futex_wake(task, process);
}

}  // namespace faultline::alloc
