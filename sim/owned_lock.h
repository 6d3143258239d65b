// SPDX-License-Identifier: Apache-2.0
//
// What the locks with one owner have in common: taking a free one, giving one back for
// which nobody waits, and the books of both.  What happens else is each lock's own.
#pragma once

#include "sim/engine.h"
#include "sim/lock_costs.h"
#include "sim/lock_stats.h"
#include "sim/wait_queue.h"

namespace faultline {

class OwnedLock {
 public:
  OwnedLock(const OwnedLock&) = delete;
  OwnedLock& operator=(const OwnedLock&) = delete;
  [[nodiscard]] Task* owner() const { return owner_; }

 protected:
  // Engine and stats must outlive the lock.
  OwnedLock(Engine& engine, LockStats& stats, const LockCosts& costs)
      : engine_(&engine), stats_(&stats), costs_(costs) {}
  ~OwnedLock() = default;

  // `wait(task)` returns when the lock, which somebody has, is the task's.
  template <typename Wait>
  void take(Task& task, Wait wait) {
    task.sync();
    task.takes(*stats_, this);
    if (owner_ != nullptr) [[unlikely]]
      wait(task);
    else
      own(task, task.now());
    ++stats_->write.acquired;
    task.charge(costs_.atomic);
  }
  [[nodiscard]] bool try_take(Task& task) {
    task.sync();
    const bool free = owner_ == nullptr;
    if (free) {
      own(task, task.now());
      ++stats_->write.acquired;
      task.tried(*stats_, this);
    }
    task.charge(costs_.atomic);
    return free;
  }
  // `awaited()` is asked once all earlier tasks have run; `release(task)` checks the owner
  // and finds the next one.
  template <typename Awaited, typename Release>
  void give(Task& task, Awaited awaited, Release release) {
    task.charge(costs_.atomic);
    task.sync();
    task.releases(this);
    stats_->write.held(task.now() - held_since_);
    if (owner_ != &task || awaited()) [[unlikely]]
      release(task);
    else
      owner_ = nullptr;
  }
  void own(Task& task, Time since) {
    owner_ = &task;
    held_since_ = since;
  }

  // A wait from its start, which is now, to count().
  class Wait {
   public:
    Wait(const OwnedLock& lock, const Task& task)
        : start_(task.now()), holder_(lock.owner_->where()) {}
    void count(const OwnedLock& lock, Task& task) const;

   private:
    Time start_;
    const CentreTree::Node* holder_;
  };
  // The task's lock becomes the first waiter's at once; it is on its way for a hand-over.
  void hand_over(Task& task, WaitQueue& waiters);

  Engine* engine_;
  LockStats* stats_;
  LockCosts costs_;
  Task* owner_ = nullptr;
  Time held_since_;
};

}  // namespace faultline
