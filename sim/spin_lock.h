// SPDX-License-Identifier: Apache-2.0
//
// The queued spinlock: waiters burn their CPU and get the lock in order of arrival.
// Preemption is off while it is held or waited for, so the holder must not block.
//
// Stands for: kernel/locking/qspinlock.c (v4.15-6.18).  Model: the pending waiter is queued
// like the others; a paravirtualised lock is not modelled.
#pragma once

#include "sim/owned_lock.h"

namespace faultline {

class SpinLock final : public OwnedLock {
 public:
  SpinLock(Engine& engine, LockStats& stats, const LockCosts& costs)
      : OwnedLock(engine, stats, costs) {}
  ~SpinLock();

  void lock(Task& task) {
    task.preempt_disable();
    take(task, [this](Task& t) { wait(t); });
  }
  void unlock(Task& task) {
    give(
        task, [this] { return !waiters_.empty(); },
        [this](Task& t) { hand_over(t, waiters_); });
    task.preempt_enable();
  }
  // For who has found it free: the books of `n` holders, each for `hold`.
  void count_holders(std::uint64_t n, Duration hold) {
    stats_->write.acquired += n;
    stats_->write.held(hold, static_cast<std::int64_t>(n));
  }
  [[nodiscard]] bool is_locked() const { return owner_ != nullptr; }

 private:
  void wait(Task& task);

  WaitQueue waiters_;
};

}  // namespace faultline
