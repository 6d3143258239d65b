// SPDX-License-Identifier: Apache-2.0
//
// A simulated thread.
//
// A task is a stackful fiber with its own clock.  It runs ahead of the others on private
// work
// (`charge`) and must call `sync` before it reads or changes anything that another task can
// see: on return from `sync` no task and no event is earlier, so what it finds is what is
// true at its time.  With nobody earlier `sync` is one comparison.
//
// Model: tasks that wait for a CPU are queued per CPU and take turns in time slices; a task
// can lose its CPU only in `sync`, `work`, and when it blocks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost_centre.h"
#include "sim/lock_order.h"
#include "sim/time.h"

namespace faultline {

class Engine;
class Fiber;
class Task;

using TaskId = std::uint32_t;  // order of creation, from 0

// Time used so far, as getrusage and the scheduler would say it.
struct TaskUsage {
  Duration user;  // running or spinning outside the kernel
  Duration sys;   // running or spinning inside it
  std::array<Duration, kTaskStates> state{};
  std::uint64_t voluntary_switches = 0;
  std::uint64_t involuntary_switches = 0;
};

// Told when a task leaves its CPU (blocks or is preempted) and when it is back on one: for
// locks whose waiters spin only while the owner runs.  See Engine::watch.
class CpuWatcher {
 public:
  virtual void on_cpu_change(Task& task, bool on_cpu) = 0;

 protected:
  ~CpuWatcher() = default;
};

class Task {
 public:
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task();

  [[nodiscard]] TaskId id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Engine& engine() const { return *engine_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] Time started() const { return started_; }
  [[nodiscard]] int cpu() const { return cpu_; }
  [[nodiscard]] int node() const { return node_; }  // NUMA node of cpu()
  [[nodiscard]] const TaskUsage& usage() const { return usage_; }
  [[nodiscard]] bool finished() const { return phase_ == Phase::kFinished; }

  // Private work on the CPU, booked where the task stands (or at one leaf below it).
  void charge(Duration d) { book(where_, TaskState::kRunning, d); }
  void charge(const Centre& leaf, Duration d) {
    book(tree_->child(where_, leaf), TaskState::kRunning, d);
  }

  // Private work outside the kernel that has been added to its node already.
  void charge_booked(Duration d) {
    now_ += d;
    usage_.state[static_cast<std::size_t>(TaskState::kRunning)] += d;
    usage_.user += d;
  }

  // Waits (in virtual time) until no other task or event is earlier than this task.
  // Preempts the task here if its slice is over and another one waits for its CPU, unless
  // preemption is off.
  void sync() {
    if (is_earliest()) [[likely]]
      return;
    sync_slow();
  }
  // Whether sync() would return at once, with nothing changed.
  [[nodiscard]] bool is_earliest() const { return now_ < *horizon_; }

  // Long work: as charge + sync, but split at slice ends so that other tasks get the CPU.
  void work(Duration d);

  // Off the CPU for `d` plus the machine's timer slack, plus the wait for a CPU.  Ends
  // early if somebody calls Engine::wake.
  void sleep(Duration d);

  // Off the CPU until somebody calls Engine::wake.  `state` says how the wait is booked.
  // No time may have passed since the last sync: what made the task block must still be
  // true.
  void block(TaskState state);

  // Waits without giving up the CPU until Engine::wake (queued spinlocks).  As block: after
  // sync.
  void spin();

  // What this task waits for: shown if the run comes to a deadlock.  Pass {} when it is
  // over.
  void set_waiting_for(std::string_view what, const Task* holder = nullptr) {
    waiting_for_ = what;
    waiting_on_ = holder;
  }

  void preempt_disable() { ++preempt_count_; }
  void preempt_enable() { --preempt_count_; }
  [[nodiscard]] bool preemptible() const { return preempt_count_ == 0; }

  // Locks tell what the task does with them; checked if the engine was asked to.
  void takes(const LockStats& kind, const void* lock) {
    if (lock_order_ != nullptr) [[unlikely]]
      lock_order_->taking(*this, kind, lock);
  }
  void tried(const LockStats& kind, const void* lock) {
    if (lock_order_ != nullptr) [[unlikely]]
      lock_order_->tried(*this, kind, lock);
  }
  void releases(const void* lock) {
    if (lock_order_ != nullptr) [[unlikely]]
      lock_order_->released(*this, lock);
  }
  void passes(const LockStats& kind) {
    if (lock_order_ != nullptr) [[unlikely]]
      lock_order_->passed(*this, kind);
  }

  // Where the task stands in the attribution tree.
  [[nodiscard]] CentreTree::Node* where() const { return where_; }
  [[nodiscard]] CentreTree::Node* below(const Centre& centre) const {
    return tree_->child(where_, centre);
  }
  void stand_at(CentreTree::Node* node) { where_ = node; }

  // One pointer for the layer above (the process of this thread, the platform's thread
  // data).
  void* context = nullptr;

 private:
  friend class Engine;
  enum class Phase : std::uint8_t {
    kNew,      // starts when its entry comes
    kOnCpu,    // runs, or will run on when its entry or a wake comes
    kQueued,   // waits for its CPU
    kBlocked,  // waits for a wake; with an entry: asleep until then
    kFinished
  };

  Task();
  void sync_slow();
  void book(CentreTree::Node* node, TaskState state, Duration d) {
    now_ += d;
    node->add(state, d);
    usage_.state[static_cast<std::size_t>(state)] += d;
    if (state <= TaskState::kSpinning) (node->kernel ? usage_.sys : usage_.user) += d;
  }

  // With SMT, of the work since the task was last synced or came onto its CPU: what stood
  // when it began, and what the sibling took that hasn't been added to it yet.
  struct SharedCore {
    Duration sibling_busy, running, user, owed;
  };

  Time now_;
  const Time* horizon_ = nullptr;  // the engine's: nobody else is due before it
  CentreTree::Node* where_ = nullptr;
  CentreTree* tree_ = nullptr;
  LockOrder* lock_order_ = nullptr;  // null: not checked
  TaskUsage usage_;
  int cpu_ = 0;
  int node_ = 0;
  int preempt_count_ = 0;

  Phase phase_ = Phase::kNew;
  TaskState waiting_as_ =
      TaskState::kRunning;        // how the time from now_ to the next entry is booked
  bool waiting_ = false;          // time has to be booked when it goes on
  bool staying_ = false;          // waits on its CPU (work, spin)
  bool stop_on_resched_ = false;  // ... and goes on when another task should have the CPU
  bool woken_ = false;            // put on a CPU or its queue by a wake, hasn't run since
  bool daemon_ = false;
  bool stopping_ = false;          // to be unwound
  std::uint64_t entry_order_ = 0;  // of its valid entry in the event queue; 0: none
  Time entry_time_;
  Time slice_end_;
  Duration slice_;  // how long it keeps a CPU that others want
  Time started_;
  bool placed_ = false;  // has been put on a CPU before

  TaskId id_ = 0;
  std::string name_;
  Engine* engine_ = nullptr;
  std::unique_ptr<Fiber> fiber_;
  std::function<void(Task&)> body_;
  std::vector<CpuWatcher*> watchers_;
  std::string_view waiting_for_;
  const Task* waiting_on_ = nullptr;
  SharedCore shared_core_;
};

// Stands one level deeper while it lives.
class Scope {
 public:
  Scope(Task& task, const Centre& centre) : task_(task), saved_(task.where()) {
    task.stand_at(task.below(centre));
  }
  ~Scope() { task_.stand_at(saved_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Task& task_;
  CentreTree::Node* saved_;
};

}  // namespace faultline
