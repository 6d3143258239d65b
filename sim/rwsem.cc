// SPDX-License-Identifier: Apache-2.0
// What both generations of the rwsem share: holders, the wait queue, who is woken by a
// release.
#include "sim/rwsem.h"

#include <algorithm>
#include <utility>

#include "sim/check.h"
#include "sim/rwsem_internal.h"

namespace faultline {
namespace {

constexpr Centre kReadFailed{"rwsem_down_read_failed", true};
constexpr Centre kWriteFailed{"rwsem_down_write_failed", true};
constexpr Centre kReadSlowpath{"rwsem_down_read_slowpath", true};
constexpr Centre kWriteSlowpath{"rwsem_down_write_slowpath", true};
constexpr std::size_t kMaxReadersWakeup = 256;

}  // namespace

// The record of one contended operation: who is in the way when it starts, how long it
// takes.
struct RwSem::Contention {
  Contention(RwSem& sem, Task& waiting, LockMode waiting_for)
      : stats(*sem.stats_), task(waiting), mode(waiting_for), start(waiting.now()) {
    const Task* in_the_way = nullptr;
    if (sem.writer_ != nullptr) {
      in_the_way = sem.writer_;
    } else if (!sem.readers_.empty()) {
      in_the_way = sem.readers_.back().task;  // as the owner field says: the last to come
      holder_mode = LockMode::kRead;
    } else {
      in_the_way = sem.waiters_.front()->task;
      holder_mode = sem.waiters_.front()->mode;
    }
    FAULTLINE_CHECK_NE(in_the_way, &task);
    holder = in_the_way->where();
    task.set_waiting_for(stats.name, in_the_way);
  }
  ~Contention() {
    task.set_waiting_for({});
    const Duration waited = task.now() - start;
    if (waited == Duration{}) return;  // it could pass the queue
    stats.side(mode).waited(waited);
    stats.blame(task.where(), mode, holder, holder_mode, waited);
  }
  Contention(const Contention&) = delete;
  Contention& operator=(const Contention&) = delete;

  LockStats& stats;
  Task& task;
  LockMode mode;
  Time start;
  const CentreTree::Node* holder = nullptr;
  LockMode holder_mode = LockMode::kWrite;
};

RwSem::~RwSem() {
  FAULTLINE_CHECK(waiters_.empty() && osq_.empty());
}

bool RwSem::held_for_read_by(const Task& task) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const Reader& r) { return r.task == &task; });
}

// --- holders ---

void RwSem::leave_as_reader(Task& task) {
  const auto me = std::find_if(readers_.begin(), readers_.end(),
                               [&](const Reader& r) { return r.task == &task; });
  FAULTLINE_CHECK(me != readers_.end());
  stats_->read.held(task.now() - me->since);
  readers_.erase(me);
}

void RwSem::down_read_contended(Task& task) {
  const Contention record(*this, task, LockMode::kRead);
  const Scope scope(task, before_5_3() ? kReadFailed : kReadSlowpath);
  if (before_5_3())
    wait_for_grant(task, LockMode::kRead);
  else
    read_slowpath_5_3(task);
}

void RwSem::down_write_contended(Task& task) {
  const Contention record(*this, task, LockMode::kWrite);
  const Scope scope(task, before_5_3() ? kWriteFailed : kWriteSlowpath);
  if (rules_ == RwSemRules::k3_7)
    wait_for_grant(task, LockMode::kWrite);
  else if (rules_ == RwSemRules::k4_15)
    write_slowpath_4_15(task);
  else
    write_slowpath_5_3(task);
  FAULTLINE_CHECK_EQ(writer_, &task);
}

// --- releasing ---

// The lock has just become free.  Stands for: rwsem_wake().
void RwSem::released(Task& task) {
  notify_spinners(task.now());
  nonspinnable_ = nonspinnable_ && waiters_.empty();
  if (!waiters_.empty()) mark_wake(task, Wake::kAny);
}

// Readers that wait may join the former writer.  Stands for: rwsem_downgrade_wake().
void RwSem::downgraded(Task& task) {
  notify_spinners(task.now());
  if (!waiters_.empty()) mark_wake(task, Wake::kReadOwned);
}

// Wakes what is at the head of the queue.  Stands for: __rwsem_mark_wake() (v4.15),
// rwsem_mark_wake() (v5.3 and later).
void RwSem::mark_wake(Task& waker, Wake type) {
  Waiter& head = *waiters_.front();
  if (head.mode == LockMode::kWrite) {
    if (type != Wake::kAny) return;
    if (rules_ == RwSemRules::k3_7) {
      remove(head);
      own(*head.task);
      write_since_ = waker.now();
      head.granted = true;
    }
    wake_up(waker, head);
    return;
  }
  FAULTLINE_CHECK_EQ(writer_, nullptr);
  grant_readers(waker);
}

// Readers leave the queue for the inside: those before the first writer (to 5.2), or up to
// 256 wherever they are (5.3).
void RwSem::grant_readers(Task& waker) {
  const bool consecutive = before_5_3();
  std::vector<Waiter*> granted, left;
  for (Waiter* waiter : waiters_) {
    const bool reader = waiter->mode == LockMode::kRead;
    const bool room = consecutive ? left.empty() : granted.size() < kMaxReadersWakeup;
    (reader && room ? granted : left).push_back(waiter);
  }
  waiters_ = std::move(left);
  handoff_ = false;
  for (Waiter* reader : granted) {
    reader->granted = true;
    enter_as_reader(*reader->task, waker.now());
  }
  notify_spinners(waker.now());
  for (Waiter* reader : granted) wake_up(waker, *reader);
}

void RwSem::wake_up(Task& waker, Waiter& waiter) {
  if (!waiter.sleeping) {
    waiter.woken = true;  // it spins before it sleeps: then it won't
    return;
  }
  waiter.sleeping = false;
  engine_->wake(*waiter.task, waker.now() + costs_.handover);
}

void RwSem::sleep(Task& task, Waiter& waiter) {
  if (std::exchange(waiter.woken, false)) return;
  waiter.sleeping = true;
  task.block(TaskState::kLockWait);
}

void RwSem::remove(const Waiter& waiter) {
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
}

}  // namespace faultline
