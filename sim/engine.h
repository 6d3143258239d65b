// SPDX-License-Identifier: Apache-2.0
//
// The discrete-event engine: tasks on CPUs in virtual time, ordered by (time, priority, sequence).
// No globals: several engines can live in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/cost_centre.h"
#include "sim/lock_stats.h"
#include "sim/task.h"
#include "sim/time.h"

namespace faultline {

// What the engine knows of the machine.
struct MachineShape {
  std::vector<int> node_of_cpu;                  // one entry a CPU; nodes from 0
  std::vector<std::vector<int>> node_distance;   // SLIT; may be empty with one node
};

struct SchedCosts {
  Duration slice = Duration::ms(4);              // of a task that shares its CPU
  Duration timer_slack = Duration::us(50);       // added to every sleep (PR_SET_TIMERSLACK)
  Duration context_switch{};                     // charged to the task switched to
  Duration wakeup{};                             // charged to the waker (try_to_wake_up)
  Duration wakeup_latency{};                     // from wake to running on an idle CPU
};

class Engine {
 public:
  Engine(MachineShape shape, SchedCosts costs);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts a task at `start` (not before now()); it is put on a CPU as a wake-up would.
  Task& spawn(std::string name, std::function<void(Task&)> body, Time start = Time{});

  // A function to run at `when` in engine context (no task); order of equal times is by priority,
  // lower first, then by call.  It may wake tasks but not block.
  using EventId = std::uint64_t;
  EventId at(Time when, std::function<void()> event, int priority = 0);
  void cancel(EventId id);

  // Runs until every task that is not a daemon has finished.  A deadlock (tasks blocked, nothing
  // to happen) is our bug or the workload's: aborts with who waits for what.
  void run();
  // Daemons (khugepaged, kswapd) don't keep run() going.
  void set_daemon(Task& task);

  [[nodiscard]] Time now() const;                // of the event or task being run
  // The task being run; null in engine context.
  [[nodiscard]] Task* current() const;

  // Makes a blocked or spinning task continue at `when` or later (wake-up latency, wait for a CPU).
  // From a task: charges SchedCosts::wakeup to it if the woken one slept.
  void wake(Task& task, Time when);

  // Called when `task` leaves its CPU by blocking or preemption, and when it is back on one: for
  // locks whose waiters spin only while the owner runs.
  void on_cpu_change(Task& task, std::function<void(bool on_cpu)> hook);
  void clear_cpu_hook(Task& task);
  [[nodiscard]] bool on_cpu(const Task& task) const;
  // Another task waits for this task's CPU and its slice is over.
  [[nodiscard]] bool need_resched(const Task& task) const;

  [[nodiscard]] const MachineShape& shape() const;
  [[nodiscard]] const SchedCosts& costs() const;
  [[nodiscard]] CentreTree& centres();
  [[nodiscard]] LockRegistry& locks();
  [[nodiscard]] const std::vector<std::unique_ptr<Task>>& tasks() const;
  [[nodiscard]] std::uint64_t events() const;    // processed so far
  [[nodiscard]] Duration idle_time() const;      // summed over CPUs
};

}  // namespace faultline
