// SPDX-License-Identifier: Apache-2.0
// The engine's event loop.  There is no loop in one place: whoever has to wait runs events
// until it is some task's turn and switches to that task.
#include "sim/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/check.h"
#include "sim/fiber.h"

namespace faultline {

struct EventQueue::Callback {
  std::function<void()> function;
  std::uint64_t order = 0;  // of its valid entry; 0: none
  std::uint64_t index = 0;
};

namespace {
constexpr int kSequenceBits = 48;
constexpr int kIndexBits = 20;  // of an EventId: which callback slot; the sequence is above
// Only daemons did anything for so long while all others were blocked: nobody will wake
// them.
constexpr Duration kDaemonsOnlyLimit = Duration::ms(1'000'000);
}  // namespace

Engine::Engine(MachineShape shape, SchedCosts costs)
    : shape_(std::move(shape)),
      costs_(costs),
      cpus_(shape_.node_of_cpu.size()),
      idle_cpus_(static_cast<int>(cpus_.size())),
      fibers_(std::make_unique<FiberHost>()),
      main_(std::make_unique<Fiber>(*fibers_)) {
  FAULTLINE_CHECK(!cpus_.empty());
  FAULTLINE_CHECK_GT(costs_.slice, Duration{});
  FAULTLINE_CHECK(shape_.threads_per_core == 1 || shape_.threads_per_core == 2);
  FAULTLINE_CHECK_EQ(cpus_.size() % static_cast<std::size_t>(shape_.threads_per_core), 0u);
  FAULTLINE_CHECK(shape_.smt_gain >= 1000 && shape_.smt_gain <= 2000);
  if (smt()) idle_cores_ = idle_cpus_ / 2;
  build_topology();
#ifndef NDEBUG
  check_lock_order();
#endif
}

Engine::~Engine() = default;

Task& Engine::spawn(std::string name, std::function<void(Task&)> body, Time start) {
  FAULTLINE_CHECK_GE(start, now());
  tasks_.push_back(std::unique_ptr<Task>(new Task));
  Task& task = *tasks_.back();
  task.id_ = static_cast<TaskId>(tasks_.size() - 1);
  task.name_ = std::move(name);
  task.engine_ = this;
  task.horizon_ = smt() ? &task_horizon_ : &horizon_;
  task.tree_ = &centres_;
  task.lock_order_ = lock_order_.get();
  task.where_ = centres_.root();
  task.cpu_ = current_ != nullptr ? current_->cpu_ : 0;
  task.node_ = shape_.node_of_cpu[static_cast<std::size_t>(task.cpu_)];
  task.now_ = task.started_ = start;
  task.slice_ = costs_.slice;
  task.body_ = std::move(body);
  ++live_;
  post(task, start);
  return task;
}

void Engine::check_lock_order() {
  if (lock_order_ == nullptr) lock_order_ = std::make_unique<LockOrder>();
}

void Engine::set_daemon(Task& task) {
  FAULTLINE_CHECK(!task.finished());
  if (task.daemon_) return;
  task.daemon_ = true;
  --live_;
}

// --- the event queue ---

std::uint64_t Engine::next_order(int priority) {
  FAULTLINE_CHECK(priority >= -0x8000 && priority < 0x8000);
  return (static_cast<std::uint64_t>(priority + 0x8000) << kSequenceBits) | ++sequence_;
}

void Engine::push(const EventQueue::Entry& entry) {
  queue_.push(entry);
  lower_horizon(entry.time);
}

// The task's turn comes at `when`; an entry it had before is void.
EventQueue::Entry Engine::new_entry(Task& task, Time when) {
  task.entry_order_ = next_order(0);
  task.entry_time_ = when;
  return {when, task.entry_order_, &task, nullptr};
}

void Engine::post(Task& task, Time when) {
  push(new_entry(task, when));
}

bool Engine::stale(const EventQueue::Entry& entry) {
  return entry.order !=
         (entry.task != nullptr ? entry.task->entry_order_ : entry.callback->order);
}

Engine::EventId Engine::at(Time when, std::function<void()> event, int priority) {
  FAULTLINE_CHECK_GE(when, now());
  if (free_callbacks_.empty()) {
    callbacks_.emplace_back();
    callbacks_.back().index = callbacks_.size() - 1;
    FAULTLINE_CHECK_LT(callbacks_.size(), std::size_t{1} << kIndexBits);
    free_callbacks_.push_back(&callbacks_.back());
  }
  EventQueue::Callback& callback = *free_callbacks_.back();
  free_callbacks_.pop_back();
  callback.function = std::move(event);
  callback.order = next_order(priority);
  push({when, callback.order, nullptr, &callback});
  return (sequence_ << kIndexBits) | callback.index;
}

void Engine::cancel(EventId id) {
  EventQueue::Callback& callback = callbacks_[id & ((std::uint64_t{1} << kIndexBits) - 1)];
  constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << kSequenceBits) - 1;
  const std::uint64_t sequence = callback.order & kSequenceMask;
  if (callback.order == 0 || sequence != id >> kIndexBits) return;
  callback.order = 0;
  callback.function = nullptr;
  free_callbacks_.push_back(&callback);
}

void Engine::run_callback(EventQueue::Callback& callback) {
  const std::function<void()> function = std::move(callback.function);
  callback.order = 0;
  callback.function = nullptr;
  free_callbacks_.push_back(&callback);
  function();
}

// --- whose turn it is ---

void Engine::set_horizon() {
  horizon_ = queue_.empty() ? Time::never() : queue_.top().time;
  if (current_ != nullptr && !cpu_of(*current_).queue.empty())
    horizon_ = std::min(horizon_, current_->slice_end_);
  if (!smt()) return;
  const bool alone = current_ == nullptr || !sibling_busy(current_->cpu_);
  task_horizon_ = alone ? horizon_ : Time{};
}

// The task whose turn it is then; null: another event, which has been dealt with.
inline Task* Engine::happens(const EventQueue::Entry& entry) {
  if (stale(entry)) return nullptr;
  ++events_;
  now_ = entry.time;
  if (entry.callback != nullptr) {
    run_callback(*entry.callback);
    return nullptr;
  }
  Task& task = *entry.task;
  task.entry_order_ = 0;
  if (task.phase_ != Task::Phase::kOnCpu) {
    place(task, entry.time);
    return nullptr;
  }
  if (task.waiting_) {
    task.book(task.where_, task.waiting_as_, entry.time - task.now_);
    task.waiting_ = false;
  }
  task.woken_ = false;
  if (task.daemon_)
    check_daemons_only(task);
  else
    last_live_ = now_;
  return current_ = &task;
}

// Runs events until a task is due and makes it current; null when the run is over.
Task* Engine::next_task() {
  current_ = nullptr;
  for (;;) {
    if (live_ == 0 || failure_) return nullptr;
    if (queue_.empty()) deadlock();
    if (Task* const due = happens(queue_.pop())) return due;
  }
}

// Returns when it is `from`'s turn again.
[[gnu::always_inline]] inline void Engine::switch_to(Task* next, Task& from) {
  if (next != &from) {
    if (next != nullptr && !next->fiber_) make_fiber(*next);
    from.fiber_->switch_to(next != nullptr ? *next->fiber_ : *main_);
    if (from.stopping_) throw Stopped{};
  }
  set_horizon();
}

// The running task lets others go first and returns when it is its turn again.
void Engine::give_way(Task& task) {
  switch_to(next_task(), task);
}

// Somebody else is due before the running task.
[[gnu::always_inline]] inline void Engine::let_first_go(Task& task) {
  current_ = nullptr;
  Task* next = happens(queue_.exchange_top(new_entry(task, task.now_)));
  switch_to(next != nullptr ? next : next_task(), task);
}

void Engine::synchronise(Task& task) {
  FAULTLINE_CHECK_EQ(current_, &task);
  do {
    while (!queue_.empty() && stale(queue_.top())) queue_.pop();
    if (!queue_.empty() && queue_.top().time <= task.now_) let_first_go(task);
  } while (smt() && share_core(task));
  if (task.preemptible() && need_resched(task))
    preempt(task);
  else if (smt())
    balance_cores(task);
  set_horizon();
}

void Engine::stay(Task& task, TaskState state, Time until, OnResched on_resched) {
  FAULTLINE_CHECK_EQ(current_, &task);
  if (until < horizon_) {
    task.book(task.where_, state, until - task.now_);
    if (state != TaskState::kRunning) begin_work(task);
    return;
  }
  task.waiting_ = task.staying_ = true;
  task.waiting_as_ = state;
  task.stop_on_resched_ = on_resched == OnResched::kStop;
  Time end = until;
  if (task.stop_on_resched_ && !cpu_of(task).queue.empty())
    end = std::min(end, std::max(task.slice_end_, task.now_));
  if (end != Time::never()) post(task, end);
  give_way(task);
  task.staying_ = task.stop_on_resched_ = false;
  if (state != TaskState::kRunning) begin_work(task);
}

// --- a task's life ---

void Engine::make_fiber(Task& task) {
  task.fiber_ = std::make_unique<Fiber>(*fibers_, [this, &task]() -> Fiber& {
    set_horizon();
    begin_work(task);
    try {
      task.body_(task);
      task.sync();
    } catch (const Stopped&) {
    } catch (...) {
      failure_ = std::current_exception();
    }
    if (stopping_) return *main_;
    finish(task);
    Task* next = next_task();
    if (next == nullptr) return *main_;
    if (!next->fiber_) make_fiber(*next);
    return *next->fiber_;
  });
}

void Engine::finish(Task& task) {
  const Time when = task.now_;
  leave_cpu(task, when);
  task.phase_ = Task::Phase::kFinished;
  if (!task.daemon_) --live_;
  now_ = when;
}

void Engine::run() {
  FAULTLINE_CHECK_EQ(current_, nullptr);
  if (Task* next = next_task()) {
    if (!next->fiber_) make_fiber(*next);
    main_->switch_to(*next->fiber_);
  }
  current_ = nullptr;
  horizon_ = task_horizon_ = Time::never();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  settle();
}

// Books what unfinished tasks (daemons) have waited so far, so that the sums hold.
void Engine::settle() {
  for (const auto& task : tasks_) {
    if (!task->waiting_ || task->now_ >= now_) continue;
    task->book(task->where_, task->waiting_as_, now_ - task->now_);
  }
}

void Engine::stop_if(bool daemon_only) {
  FAULTLINE_CHECK_EQ(current_, nullptr);
  stopping_ = true;
  for (const auto& task : tasks_) {
    if (task->finished() || (daemon_only && !task->daemon_)) continue;
    task->stopping_ = true;
    current_ = task.get();
    horizon_ = task_horizon_ = Time::never();
    if (task->fiber_) main_->switch_to(*task->fiber_);
    task->phase_ = Task::Phase::kFinished;
    if (!task->daemon_) --live_;
  }
  current_ = nullptr;
  stopping_ = false;
  if (!daemon_only) queue_ = EventQueue{};
}

// --- nothing more will happen ---

void Engine::check_daemons_only(const Task& task) {
  if (asleep_live_ > 0 || task.now_ - last_live_ < kDaemonsOnlyLimit) return;
  for (const auto& t : tasks_)
    if (!t->daemon_ && !t->finished() && t->phase_ != Task::Phase::kBlocked) return;
  deadlock();
}

void Engine::deadlock() const {
  std::string message = "deadlock at " + check::text(now_) + ": nothing will wake";
  for (const auto& t : tasks_) {
    if (t->finished()) continue;
    message += "\n  task " + std::to_string(t->id_) + " '" + t->name_ + "'";
    if (t->daemon_) message += " (daemon)";
    message += " on CPU " + std::to_string(t->cpu_) + ", " +
               std::string(name_of(t->waiting_as_)) + " since " + check::text(t->now_);
    if (t->where_->parent != nullptr) message += " in " + CentreTree::path(*t->where_);
    if (!t->waiting_for_.empty()) message += ", waits for " + std::string(t->waiting_for_);
    if (t->waiting_on_ != nullptr)
      message += " held by task " + std::to_string(t->waiting_on_->id_) + " '" +
                 t->waiting_on_->name_ + "'";
  }
  check::fail(__FILE__, __LINE__, message, {});
}

}  // namespace faultline
