// SPDX-License-Identifier: Apache-2.0
//
// The user's futex lock in virtual time: free, taken, or taken and perhaps waited for.
//
// As in a libc, unlocking wakes the first sleeper but doesn't hand the lock over: who comes
// first gets it, and a woken thread that finds it taken sleeps again.  Contention costs
// system calls.
//
// Stands for: lll_lock and lll_unlock (glibc, sysdeps/nptl/lowlevellock.h), futex_wait and
// futex_wake (kernel/futex.c, v4.15-6.18).
// Model: the hash bucket's lock is part of the machine's cost futex_call.
#pragma once

#include <cstdint>

#include "kernel_model/kernel.h"
#include "sim/lock_stats.h"
#include "sim/task.h"
#include "sim/wait_queue.h"

namespace faultline::alloc {

class ModelLock {
 public:
  explicit ModelLock(const char* name) : name_(name) {}
  ModelLock(const ModelLock&) = delete;
  ModelLock& operator=(const ModelLock&) = delete;

  void lock(Task& task, kernel::Process& process);
  bool try_lock(Task& task, kernel::Process& process);
  void unlock(Task& task, kernel::Process& process);
  // Free; precondition: nobody sleeps for it.
  void reset();

 private:
  enum class State : std::uint8_t { kFree, kTaken, kContended };
  void own(Task& task);
  void lock_slow(Task& task, kernel::Process& process);
  void futex_wait(Task& task, kernel::Process& process);
  void futex_wake(Task& task, kernel::Process& process);
  LockStats& stats(Task& task);

  const char* name_;
  State state_ = State::kFree;
  Task* owner_ = nullptr;
  Time held_since_;
  WaitQueue sleepers_;
  LockStats* stats_ = nullptr;  // the engine's entry of that name, from the first use on
};

}  // namespace faultline::alloc
