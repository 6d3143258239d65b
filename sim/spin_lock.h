// SPDX-License-Identifier: Apache-2.0
//
// The queued spinlock: waiters burn their CPU and get the lock in order of arrival.
// Preemption is off while it is held or waited for, so the holder must not block.
//
// Stands for: kernel/locking/qspinlock.c (v4.15-6.18).  Model: the pending waiter is queued
// like the others; a paravirtualised lock is not modelled.
#pragma once

#include "sim/engine.h"
#include "sim/lock_costs.h"
#include "sim/lock_stats.h"
#include "sim/wait_queue.h"

namespace faultline {

class SpinLock {
 public:
  // Engine and stats must outlive the lock.
  SpinLock(Engine& engine, LockStats& stats, const LockCosts& costs)
      : engine_(&engine), stats_(&stats), costs_(costs) {}
  ~SpinLock();
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock(Task& task) {
    task.preempt_disable();
    task.sync();
    task.takes(*stats_, this);
    if (owner_ != nullptr) [[unlikely]]
      wait(task);
    else
      own(task, task.now());
    ++stats_->write.acquired;
    task.charge(costs_.atomic);
  }
  void unlock(Task& task) {
    task.charge(costs_.atomic);
    task.sync();
    task.releases(this);
    stats_->write.held(task.now() - held_since_);
    if (owner_ != &task || !waiters_.empty()) [[unlikely]]
      hand_over(task);
    else
      owner_ = nullptr;
    task.preempt_enable();
  }
  // For who has found it free: the books of `n` holders, each for `hold`.
  void count_holders(std::uint64_t n, Duration hold) {
    stats_->write.acquired += n;
    stats_->write.held(hold, static_cast<std::int64_t>(n));
  }
  [[nodiscard]] bool is_locked() const { return owner_ != nullptr; }
  [[nodiscard]] const Task* owner() const { return owner_; }

 private:
  void own(Task& task, Time since) {
    owner_ = &task;
    held_since_ = since;
  }
  void wait(Task& task);
  void hand_over(Task& task);

  Engine* engine_;
  LockStats* stats_;
  LockCosts costs_;
  Task* owner_ = nullptr;
  Time held_since_;
  WaitQueue waiters_;
};

}  // namespace faultline
