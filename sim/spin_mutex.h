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

#include "sim/engine.h"
#include "sim/lock_costs.h"
#include "sim/lock_stats.h"
#include "sim/wait_queue.h"

namespace faultline {

enum class MutexSpin : bool { kNo, kYes };

class SpinningMutex final : private CpuWatcher {
 public:
  // Engine and stats must outlive the lock.
  SpinningMutex(Engine& engine, LockStats& stats, const LockCosts& costs, MutexSpin spin)
      : engine_(&engine), stats_(&stats), costs_(costs), spin_(spin) {}
  ~SpinningMutex();
  SpinningMutex(const SpinningMutex&) = delete;
  SpinningMutex& operator=(const SpinningMutex&) = delete;

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
    if (owner_ != &task || watched_ != nullptr || !sleepers_.empty()) [[unlikely]]
      release(task);
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
  void release(Task& task);
  void watch_owner();
  void on_cpu_change(Task& task, bool on_cpu) override;

  Engine* engine_;
  LockStats* stats_;
  LockCosts costs_;
  MutexSpin spin_;
  Task* owner_ = nullptr;
  Task* watched_ = nullptr;  // the owner, from the first one on who spins
  Time held_since_;
  WaitQueue spinners_, sleepers_;
};

}  // namespace faultline
