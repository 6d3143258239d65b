// SPDX-License-Identifier: Apache-2.0
//
// Locks in virtual time: interfaces of the queued spinlock, the sleeping mutex (which is the
// user's futex lock, too) and the reader-writer semaphore.  Each is a shared effect: each call
// synchronises first.  Costs of the uncontended operation are the caller's LockCosts.
#pragma once

#include <memory>

#include "sim/engine.h"

namespace faultline {

struct LockCosts {
  Duration atomic{};        // one uncontended atomic operation (acquire, or release)
  Duration handover{};      // cache-line transfer to the next owner of a contended lock
};

// FIFO; waiters burn their CPU.  Preemption is off while it is held or waited for.
// Stands for: kernel/locking/qspinlock.c (v4.15-6.18).
class SpinLock {
 public:
  SpinLock(Engine& engine, LockStats& stats, const LockCosts& costs);
  ~SpinLock();
  void lock(Task& task);
  void unlock(Task& task);
  [[nodiscard]] bool is_locked() const;
};

// Waiters sleep, FIFO hand-off.
class Mutex {
 public:
  Mutex(Engine& engine, LockStats& stats, const LockCosts& costs);
  ~Mutex();
  void lock(Task& task);
  bool try_lock(Task& task);
  void unlock(Task& task);
  [[nodiscard]] Task* owner() const;
};

enum class RwSemRules { k4_15, k5_3 };  // kernel facts section 9

// Stands for: kernel/locking/rwsem-xadd.c (v4.15) or kernel/locking/rwsem.c (v5.3 and later).
class RwSem {
 public:
  RwSem(Engine& engine, LockStats& stats, const LockCosts& costs, RwSemRules rules);
  ~RwSem();
  void down_read(Task& task);
  bool down_read_trylock(Task& task);
  void up_read(Task& task);
  void down_write(Task& task);
  bool down_write_trylock(Task& task);
  void up_write(Task& task);
  void downgrade_write(Task& task);
  [[nodiscard]] bool held_for_write_by(const Task& task) const;
  [[nodiscard]] bool contended() const;  // somebody waits (rwsem_is_contended)
};

}  // namespace faultline
