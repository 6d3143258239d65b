// SPDX-License-Identifier: Apache-2.0
//
// A mutex whose waiters sleep and get it in order of arrival: the one who unlocks hands it
// over.
//
// Model: no optimistic spinning and no stealing; a waiter owns the lock from the hand-over
// on, while it is still on its way to a CPU.
#pragma once

#include "sim/engine.h"
#include "sim/lock_costs.h"
#include "sim/lock_stats.h"
#include "sim/wait_queue.h"

namespace faultline {

class Mutex {
 public:
  // Engine and stats must outlive the lock.
  Mutex(Engine& engine, LockStats& stats, const LockCosts& costs)
      : engine_(&engine), stats_(&stats), costs_(costs) {}
  ~Mutex();
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock(Task& task) {
    task.sync();
    task.takes(*stats_, this);
    if (owner_ != nullptr) [[unlikely]]
      wait(task);
    else
      own(task, task.now());
    ++stats_->write.acquired;
    task.charge(costs_.atomic);
  }
  bool try_lock(Task& task) {
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
  void unlock(Task& task) {
    task.charge(costs_.atomic);
    task.sync();
    task.releases(this);
    stats_->write.held(task.now() - held_since_);
    if (owner_ != &task || !waiters_.empty()) [[unlikely]]
      hand_over(task);
    else
      owner_ = nullptr;
  }
  [[nodiscard]] Task* owner() const { return owner_; }

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
