// SPDX-License-Identifier: Apache-2.0
//
// The kernel's mutex: who finds it taken spins as long as the owner runs, else sleeps.
//
// A spinner gets the lock when it is released.  If nobody spins, a release wakes the first
// sleeper, but the lock is free meanwhile and goes to whoever comes first.  So a short
// critical section never makes a convoy of sleepers, unless spinning is off, as in kernels
// built to check their mutexes.
//
// Stands for: kernel/mutex.c (v3.9, CONFIG_MUTEX_SPIN_ON_OWNER) to kernel/locking/mutex.c
// (v6.18).  Model: spinners queue in order of arrival, as with the MCS lock of 3.10; no
// handoff to a sleeper that waited long (4.10).
#pragma once

#include "sim/owned_lock.h"

namespace faultline {

enum class MutexSpin : bool { kNo, kYes };

class SpinningMutex final : public OwnedLock, private CpuWatcher {
 public:
  SpinningMutex(Engine& engine, LockStats& stats, const LockCosts& costs, MutexSpin spin)
      : OwnedLock(engine, stats, costs), spin_(spin) {}
  ~SpinningMutex();

  void lock(Task& task) {
    take(task, [this](Task& t) { wait(t); });
  }
  bool try_lock(Task& task) { return try_take(task); }
  void unlock(Task& task) {
    give(
        task, [this] { return watched_ != nullptr || !sleepers_.empty(); },
        [this](Task& t) { release(t); });
  }

 private:
  void wait(Task& task);
  void release(Task& task);
  void watch_owner();
  void on_cpu_change(Task& task, bool on_cpu) override;

  MutexSpin spin_;
  Task* watched_ = nullptr;  // the owner, from the first one on who spins
  WaitQueue spinners_, sleepers_;
};

}  // namespace faultline
