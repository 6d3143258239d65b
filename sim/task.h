// SPDX-License-Identifier: Apache-2.0
//
// A simulated thread.
//
// A task is a stackful fiber with its own clock.  It runs ahead of the others on private work
// (`charge`) and must call `sync` before it reads or changes anything that another task can see:
// on return from `sync` no task and no event is earlier, so what it finds is what is true at its
// time.  With nobody earlier `sync` is one comparison.
//
// Model: tasks that wait for a CPU are queued per CPU and take turns in time slices; a task can
// lose its CPU only in `sync`, `work`, and when it blocks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sim/cost_centre.h"
#include "sim/time.h"

namespace faultline {

class Engine;
class Fiber;

using TaskId = std::uint32_t;  // order of creation, from 0

// Time used so far, as getrusage and the scheduler would say it.
struct TaskUsage {
  Duration user;                             // running or spinning outside the kernel
  Duration sys;                              // running or spinning inside it
  std::array<Duration, kTaskStates> state{};
  std::uint64_t voluntary_switches = 0;
  std::uint64_t involuntary_switches = 0;
};

class Task {
 public:
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  [[nodiscard]] TaskId id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Engine& engine() const { return *engine_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] int cpu() const { return cpu_; }
  [[nodiscard]] int node() const { return node_; }  // NUMA node of cpu()
  [[nodiscard]] const TaskUsage& usage() const { return usage_; }
  [[nodiscard]] bool finished() const { return finished_; }

  // Private work on the CPU, booked where the task stands (or at one leaf below it).
  void charge(Duration d) { book(where_, TaskState::kRunning, d); }
  void charge(const Centre& leaf, Duration d);

  // Waits (in virtual time) until no other task or event is earlier than this task.  Preempts the
  // task here if its slice is over and another one waits for its CPU, unless preemption is off.
  void sync();

  // Long work: as charge + sync, but split at slice ends so that other tasks get the CPU.
  void work(Duration d);

  // Off the CPU for `d` plus the machine's timer slack, plus the wait for a CPU.
  void sleep(Duration d);

  // Off the CPU until somebody calls Engine::wake.  `state` says how the wait is booked.
  void block(TaskState state);

  // Waits without giving up the CPU until Engine::wake (queued spinlocks, optimistic spinning).
  void spin();

  void preempt_disable() { ++preempt_count_; }
  void preempt_enable() { --preempt_count_; }

  // Where the task stands in the attribution tree.
  [[nodiscard]] CentreTree::Node* where() const { return where_; }
  void stand_at(CentreTree::Node* node) { where_ = node; }

  // One pointer for the layer above (the process of this thread, the platform's thread data).
  void* context = nullptr;

 private:
  friend class Engine;
  Task() = default;
  void book(CentreTree::Node* node, TaskState state, Duration d);

  TaskId id_ = 0;
  std::string name_;
  Engine* engine_ = nullptr;
  Fiber* fiber_ = nullptr;
  Time now_;
  Time slice_end_;
  int cpu_ = -1;
  int node_ = 0;
  int preempt_count_ = 0;
  bool finished_ = false;
  CentreTree::Node* where_ = nullptr;
  TaskUsage usage_;
};

// Stands one level deeper while it lives.
class Scope {
 public:
  Scope(Task& task, const Centre& centre);
  ~Scope() { task_.stand_at(saved_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Task& task_;
  CentreTree::Node* saved_;
};

}  // namespace faultline
