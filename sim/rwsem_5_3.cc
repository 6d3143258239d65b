// SPDX-License-Identifier: Apache-2.0
// The rwsem's slow paths by the rules of kernel/locking/rwsem.c (v5.14-6.12).
#include <algorithm>

#include "sim/rwsem.h"
#include "sim/rwsem_internal.h"

namespace faultline {
namespace {

constexpr Centre kOptimisticSpin{"rwsem_optimistic_spin", true};
constexpr Duration kWaitTimeout = Duration::ms(4);  // RWSEM_WAIT_TIMEOUT

// rwsem_rspin_threshold(): 10 us and half a microsecond a reader, up to 30 of them.
Duration reader_spin_limit(std::size_t readers) {
  return Duration::ns(500) *
         (20 + static_cast<std::int64_t>(std::min<std::size_t>(readers, 30)));
}

}  // namespace

// Stands for: rwsem_down_read_slowpath().
void RwSem::read_slowpath_5_3(Task& task) {
  const bool first_inside = readers_.empty();
  const bool may_steal = rules_ == RwSemRules::k5_11;
  if (may_steal && first_inside && writer_ == nullptr && !handoff_) {
    enter_as_reader(task, task.now());
    if (!waiters_.empty()) mark_wake(task, Wake::kReadOwned);
    return;
  }
  Waiter me{.task = &task, .mode = LockMode::kRead, .since = task.now()};
  waiters_.push_back(&me);
  cond_wake_waiter(task);
  for (;;) {
    task.sync();
    me.woken = false;
    if (me.granted) return;
    sleep(task, me);
  }
}

// Stands for: rwsem_down_write_slowpath().
void RwSem::write_slowpath_5_3(Task& task) {
  if (can_spin_5_3(task) && spin_5_3(task)) return;
  Waiter me{.task = &task, .mode = LockMode::kWrite, .since = task.now()};
  waiters_.push_back(&me);
  if (waiters_.front() != &me) cond_wake_waiter(task);
  for (;;) {
    task.sync();
    me.woken = false;
    if (try_write_lock_5_3(task, me)) return;
    if (me.handoff_set) {
      spin_for_handoff(task, me);
      if (writer_ == &task) return;
    }
    sleep(task, me);
  }
}

// Stands for: rwsem_cond_wake_waiter().
void RwSem::cond_wake_waiter(Task& task) {
  if (writer_ != nullptr) return;
  if (readers_.empty()) nonspinnable_ = false;
  mark_wake(task, readers_.empty() ? Wake::kAny : Wake::kReaders);
}

// Stands for: rwsem_try_write_lock(): takes the lock from within the queue, or asks for the
// handoff.
bool RwSem::try_write_lock_5_3(Task& task, Waiter& waiter) {
  Waiter& first = *waiters_.front();
  if (handoff_ && first.handoff_set && &first != &waiter) return false;
  if (is_locked()) {
    if (!handoff_ && waits_too_long(task, waiter)) handoff_ = first.handoff_set = true;
    return false;
  }
  handoff_ = false;
  remove(waiter);
  own(task);
  notify_spinners(task.now());
  return true;
}

bool RwSem::waits_too_long(const Task& task, const Waiter& waiter) const {
  return task.now() - waiter.since > kWaitTimeout;
}

// The handoff is set for this writer: it spins on an owner that is a writer, and takes the
// lock when that one leaves.
void RwSem::spin_for_handoff(Task& task, Waiter& waiter) {
  Spinner me{.task = &task};
  handoff_spinner_ = &me;
  task.preempt_disable();
  while (spin_on_owner(me) == Seen::kNull)
    if (try_write_lock_5_3(task, waiter)) break;
  task.preempt_enable();
  handoff_spinner_ = nullptr;
}

// Stands for: rwsem_can_spin_on_owner().
bool RwSem::can_spin_5_3(const Task& task) const {
  if (engine_->need_resched(task) || nonspinnable_) return false;
  return owner_ != Owner::kWriter || engine_->on_cpu(*writer_);
}

// Stands for: rwsem_optimistic_spin(); true if it got the lock.
bool RwSem::spin_5_3(Task& task) {
  task.preempt_disable();
  bool taken = false;
  if (Spinner me{.task = &task}; osq_lock(me)) {
    taken = spin_while_owned_5_3(me);
    osq_unlock(me);
  }
  task.preempt_enable();
  return taken;
}

bool RwSem::spin_while_owned_5_3(Spinner& me) {
  Task& task = *me.task;
  Seen before = Seen::kNull;
  Time limit = Time::never();
  for (;;) {
    const Seen state = spin_on_owner(me);
    if (state == Seen::kNonspinnable) return false;
    if (!is_locked() && !handoff_) {
      own(task);
      return true;
    }
    if (state == Seen::kReader) {
      if (before != Seen::kReader) {
        limit = task.now() + reader_spin_limit(readers_.size());
      } else if (task.now() >= limit) {
        nonspinnable_ = owner_ == Owner::kReaders;
        return false;
      }
    }
    if (state != Seen::kWriter && engine_->need_resched(task)) return false;
    before = state;
    if (state == Seen::kReader) spin(me, kOptimisticSpin, limit);
    if (state == Seen::kNull) spin(me, kOptimisticSpin, Time::never());
  }
}

}  // namespace faultline
