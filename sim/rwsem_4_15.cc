// SPDX-License-Identifier: Apache-2.0
// The rwsem's slow paths by the rules of kernel/locking/rwsem-xadd.c (v4.15), and of
// lib/rwsem.c (v3.7), where no writer takes the lock before its turn.
#include "sim/rwsem.h"
#include "sim/rwsem_internal.h"

namespace faultline {

// Queues until a release gives the task the lock.
// Stands for: __rwsem_down_read_failed_common() (v4.15); rwsem_down_failed_common() (v3.7),
// for writers, too.
void RwSem::wait_for_grant(Task& task, LockMode mode) {
  Waiter me{.task = &task, .mode = mode, .since = task.now()};
  waiters_.push_back(&me);
  if (!is_locked()) mark_wake(task, Wake::kAny);
  for (;;) {
    task.sync();
    me.woken = false;
    if (me.granted) return;
    sleep(task, me);
  }
}

// Stands for: __rwsem_down_write_failed_common().
void RwSem::write_slowpath_4_15(Task& task) {
  if (spin_4_15(task)) return;
  Waiter me{.task = &task, .mode = LockMode::kWrite, .since = task.now()};
  const bool others_wait = !waiters_.empty();
  waiters_.push_back(&me);
  if (others_wait && !readers_.empty()) mark_wake(task, Wake::kReaders);
  for (;;) {
    task.sync();
    me.woken = false;
    if (!is_locked()) break;  // whatever the place in the queue
    sleep(task, me);
  }
  remove(me);
  own(task);
}

// Stands for: rwsem_can_spin_on_owner().  The owner field says "readers" from the first
// reader's entry until a writer comes, also while the lock is free.
bool RwSem::can_spin_4_15(const Task& task) const {
  if (engine_->need_resched(task)) return false;
  if (owner_ == Owner::kWriter) return engine_->on_cpu(*writer_);
  return owner_ != Owner::kReaders;
}

// Stands for: rwsem_optimistic_spin(); true if it got the lock.
bool RwSem::spin_4_15(Task& task) {
  if (!can_spin_4_15(task)) return false;
  task.preempt_disable();
  bool taken = false;
  if (Spinner me{.task = &task}; osq_lock(me)) {
    for (;;) {
      const Seen state = spin_on_owner(me);
      if (state == Seen::kReader || state == Seen::kNonspinnable) break;
      if (!is_locked()) {
        own(task);
        taken = true;
        break;
      }
    }
    osq_unlock(me);
  }
  task.preempt_enable();
  return taken;
}

}  // namespace faultline
