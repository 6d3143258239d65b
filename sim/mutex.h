// SPDX-License-Identifier: Apache-2.0
//
// A mutex whose waiters sleep and get it in order of arrival: the one who unlocks hands it
// over.
//
// Model: no optimistic spinning and no stealing; a waiter owns the lock from the hand-over
// on, while it is still on its way to a CPU.
#pragma once

#include "sim/owned_lock.h"

namespace faultline {

class Mutex final : public OwnedLock {
 public:
  Mutex(Engine& engine, LockStats& stats, const LockCosts& costs)
      : OwnedLock(engine, stats, costs) {}
  ~Mutex();

  void lock(Task& task) {
    take(task, [this](Task& t) { wait(t); });
  }
  bool try_lock(Task& task) { return try_take(task); }
  void unlock(Task& task) {
    give(
        task, [this] { return !waiters_.empty(); },
        [this](Task& t) { hand_over(t, waiters_); });
  }

 private:
  void wait(Task& task);

  WaitQueue waiters_;
};

}  // namespace faultline
