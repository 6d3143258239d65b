// SPDX-License-Identifier: Apache-2.0
//
// The kernel's reader-writer semaphore (mmap_lock), by the rules of four kernel
// generations.
//
// The rules decide who gets the lock and who sleeps, and with that how convoys form:
//   k3_7   Strictly in order: a release gives the lock to the head of the queue, the
//   readers
//          up to the first writer or one writer, who own it while they are still asleep.
//          Nobody passes the queue, nobody spins.
//   k4_15  Readers behind any waiter queue.  A release wakes the head of the queue: the
//          readers up to the first writer, or one writer, which must then grab the lock
//          itself while others may take it first.  Writers spin only on a writer that is
//          on a CPU.  No handoff.
//   k5_3   All queued readers are woken together when a reader is at the head.  Writers
//          spin on readers, too, for 10-25 us.  A writer that waited more than 4 ms has
//          the lock handed to it.
//   k5_11  As k5_3, and a reader may pass queued writers if no other reader is inside
//          (reader lock stealing, which replaced the readers' spinning of 5.3-5.10).
//
// Stands for: lib/rwsem.c (v3.7), kernel/locking/rwsem.c with rwsem-xadd.c (v4.15),
// kernel/locking/rwsem.c (v5.14-6.12; the readers' optimistic spinning of v5.3-5.10 is left
// out).  Model: each operation is one step, so nobody gets in between a release and the
// wake-ups it does; the 4 ms are not rounded to jiffies.
#pragma once

#include <vector>

#include "sim/check.h"
#include "sim/engine.h"
#include "sim/lock_costs.h"
#include "sim/lock_stats.h"

namespace faultline {

enum class RwSemRules { k3_7, k4_15, k5_3, k5_11 };

class RwSem final : private CpuWatcher {
 public:
  // Engine and stats must outlive the lock.
  RwSem(Engine& engine, LockStats& stats, const LockCosts& costs, RwSemRules rules)
      : engine_(&engine), stats_(&stats), costs_(costs), rules_(rules) {}
  ~RwSem();
  RwSem(const RwSem&) = delete;
  RwSem& operator=(const RwSem&) = delete;

  void down_read(Task& task) {
    task.sync();
    task.takes(*stats_, this);
    if (readers_may_enter()) [[likely]]
      enter_as_reader(task, task.now());
    else
      down_read_contended(task);
    ++stats_->read.acquired;
    task.charge(costs_.atomic);
  }
  bool down_read_trylock(Task& task) {
    task.sync();
    const bool may = readers_may_enter();
    if (may) {
      enter_as_reader(task, task.now());
      task.tried(*stats_, this);
    }
    stats_->read.acquired += may;
    task.charge(costs_.atomic);
    return may;
  }
  void up_read(Task& task) {
    task.charge(costs_.atomic);
    task.sync();
    task.releases(this);
    leave_as_reader(task);
    if (readers_.empty() && !quiet()) [[unlikely]]
      released(task);
  }
  void down_write(Task& task) {
    task.sync();
    task.takes(*stats_, this);
    if (is_unlocked()) [[likely]]
      own(task);
    else
      down_write_contended(task);
    ++stats_->write.acquired;
    task.charge(costs_.atomic);
  }
  bool down_write_trylock(Task& task) {
    task.sync();
    const bool may = is_unlocked();
    if (may) {
      own(task);
      task.tried(*stats_, this);
    }
    stats_->write.acquired += may;
    task.charge(costs_.atomic);
    return may;
  }
  void up_write(Task& task) {
    task.charge(costs_.atomic);
    task.sync();
    task.releases(this);
    disown(task);
    owner_ = Owner::kNone;
    nonspinnable_ = false;
    if (!quiet()) [[unlikely]]
      released(task);
  }
  void downgrade_write(Task& task) {
    task.charge(costs_.atomic);
    task.sync();
    disown(task);
    enter_as_reader(task, task.now());
    ++stats_->read.acquired;
    if (!quiet()) [[unlikely]]
      downgraded(task);
  }

  // Nobody is in a reader's way.
  [[nodiscard]] bool readers_may_enter() const {
    return writer_ == nullptr && waiters_.empty();
  }
  // For who has found that to be so: the books of `n` readers, each in and out again after
  // `hold`.
  void count_readers(std::uint64_t n, Duration hold) {
    stats_->read.acquired += n;
    stats_->read.held(hold, static_cast<std::int64_t>(n));
  }
  [[nodiscard]] bool held_for_write_by(const Task& task) const { return writer_ == &task; }
  [[nodiscard]] bool held_for_read_by(const Task& task) const;
  [[nodiscard]] bool is_locked() const { return writer_ != nullptr || !readers_.empty(); }
  // Somebody is in the wait queue (rwsem_is_contended).
  [[nodiscard]] bool contended() const { return !waiters_.empty(); }

 private:
  // Before 5.3 readers are woken up to the first writer.
  [[nodiscard]] bool before_5_3() const {
    return rules_ == RwSemRules::k3_7 || rules_ == RwSemRules::k4_15;
  }
  // The kernel's owner field: a release by readers leaves it as it is.
  enum class Owner { kNone, kWriter, kReaders };
  // What a spinner sees in it.
  enum class Seen { kNull, kWriter, kReader, kNonspinnable };
  enum class Wake { kAny, kReaders, kReadOwned };
  struct Reader {
    Task* task;
    Time since;
  };
  struct Waiter;
  struct Spinner;
  struct Contention;

  [[nodiscard]] bool quiet() const {
    return waiters_.empty() && osq_.empty() && handoff_spinner_ == nullptr;
  }
  // As readers_may_enter(), the fast path's condition is the same under all rules.
  [[nodiscard]] bool is_unlocked() const { return !is_locked() && waiters_.empty(); }

  void own(Task& task);
  void disown(Task& task);
  void enter_as_reader(Task& task, Time since);
  void leave_as_reader(Task& task);

  // rwsem.cc: what both rules share.
  void down_read_contended(Task& task);
  void down_write_contended(Task& task);
  void released(Task& task);
  void downgraded(Task& task);
  void mark_wake(Task& waker, Wake type);
  void grant_readers(Task& waker);
  void wake_up(Task& waker, Waiter& waiter);
  void sleep(Task& task, Waiter& waiter);
  void remove(const Waiter& waiter);

  // rwsem_4_15.cc
  void wait_for_grant(Task& task, LockMode mode);
  void write_slowpath_4_15(Task& task);
  [[nodiscard]] bool spin_4_15(Task& task);
  [[nodiscard]] bool can_spin_4_15(const Task& task) const;

  // rwsem_5_3.cc
  void read_slowpath_5_3(Task& task);
  void write_slowpath_5_3(Task& task);
  [[nodiscard]] bool try_write_lock_5_3(Task& task, Waiter& waiter);
  [[nodiscard]] bool waits_too_long(const Task& task, const Waiter& waiter) const;
  void cond_wake_waiter(Task& task);
  [[nodiscard]] bool can_spin_5_3(const Task& task) const;
  [[nodiscard]] bool spin_5_3(Task& task);
  [[nodiscard]] bool spin_while_owned_5_3(Spinner& me);
  void spin_for_handoff(Task& task, Waiter& waiter);

  // rwsem_spin.cc
  [[nodiscard]] bool osq_lock(Spinner& me);
  void osq_unlock(Spinner& me);
  [[nodiscard]] Seen seen() const;
  [[nodiscard]] Seen spin_on_owner(Spinner& me);
  void spin(Spinner& me, const Centre& place, Time until);
  void notify(Spinner& spinner, Time when);
  void notify_spinners(Time when);
  void on_cpu_change(Task& task, bool on_cpu) override;

  Engine* engine_;
  LockStats* stats_;
  LockCosts costs_;
  RwSemRules rules_;

  Task* writer_ = nullptr;
  Time write_since_;
  std::vector<Reader> readers_;   // who is inside, by time of entry
  std::vector<Waiter*> waiters_;  // by arrival
  Owner owner_ = Owner::kNone;
  bool nonspinnable_ = false;  // 5.3: spinning on these readers took too long
  bool handoff_ = false;       // 5.3: only the first waiter may take the lock

  std::vector<Spinner*> osq_;  // the first one spins on the owner, the others on their turn
  Spinner* handoff_spinner_ = nullptr;
};

inline void RwSem::own(Task& task) {
  writer_ = &task;
  write_since_ = task.now();
  owner_ = Owner::kWriter;
  nonspinnable_ = false;
}

inline void RwSem::disown(Task& task) {
  FAULTLINE_CHECK_EQ(writer_, &task);
  stats_->write.held(task.now() - write_since_);
  writer_ = nullptr;
}

inline void RwSem::enter_as_reader(Task& task, Time since) {
  readers_.push_back({&task, since});
  owner_ = Owner::kReaders;
}

}  // namespace faultline
