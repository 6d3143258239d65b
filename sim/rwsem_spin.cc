// SPDX-License-Identifier: Apache-2.0
// Optimistic spinning, as both generations of the rwsem do it: one task at a time spins on
// the owner, the others queue for that place (the OSQ). Stands for: rwsem_spin_on_owner(),
// kernel/locking/osq_lock.c (v4.15-6.12).  Model: a spinner that waits is told of a change
// one cache-line transfer later instead of polling.
#include <algorithm>

#include "sim/rwsem.h"
#include "sim/rwsem_internal.h"

namespace faultline {
namespace {
constexpr Centre kOsqLock{"osq_lock", true};
constexpr Centre kSpinOnOwner{"rwsem_spin_on_owner", true};
}  // namespace

// False if the task should give up its CPU before its turn comes.
bool RwSem::osq_lock(Spinner& me) {
  osq_.push_back(&me);
  while (osq_.front() != &me) {
    if (engine_->need_resched(*me.task)) {
      osq_.erase(std::find(osq_.begin(), osq_.end(), &me));
      return false;
    }
    spin(me, kOsqLock, Time::never());
  }
  return true;
}

void RwSem::osq_unlock(Spinner& me) {
  osq_.erase(osq_.begin());
  if (!osq_.empty()) notify(*osq_.front(), me.task->now());
}

RwSem::Seen RwSem::seen() const {
  if (nonspinnable_) return Seen::kNonspinnable;
  if (owner_ == Owner::kReaders) return Seen::kReader;
  return owner_ == Owner::kWriter ? Seen::kWriter : Seen::kNull;
}

// Spins while the same writer owns the lock and runs.
RwSem::Seen RwSem::spin_on_owner(Spinner& me) {
  Task* const owner = writer_;
  if (owner_ != Owner::kWriter) return seen();
  while (owner_ == Owner::kWriter && writer_ == owner) {
    if (!engine_->on_cpu(*owner) || engine_->need_resched(*me.task))
      return Seen::kNonspinnable;
    engine_->watch(*owner, *this);
    spin(me, kSpinOnOwner, Time::never());
    engine_->unwatch(*owner, *this);
  }
  return seen();
}

void RwSem::spin(Spinner& me, const Centre& place, Time until) {
  const Scope scope(*me.task, place);
  me.waiting = true;
  engine_->stay(*me.task, TaskState::kSpinning, until, Engine::OnResched::kStop);
  me.waiting = false;
}

void RwSem::notify(Spinner& spinner, Time when) {
  if (spinner.waiting) engine_->wake(*spinner.task, when + costs_.handover);
}

void RwSem::notify_spinners(Time when) {
  if (!osq_.empty()) notify(*osq_.front(), when);
  if (handoff_spinner_ != nullptr) notify(*handoff_spinner_, when);
}

// The owner blocked or was preempted: no use spinning on it.
void RwSem::on_cpu_change(Task&, bool on_cpu) {
  if (!on_cpu) notify_spinners(engine_->now());
}

}  // namespace faultline
