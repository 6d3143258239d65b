// SPDX-License-Identifier: Apache-2.0
//
// The discrete-event engine: tasks on CPUs in virtual time, ordered by (time, priority,
// sequence). No globals: several engines can live in one process.
//
// The one idea: `horizon_` is the earliest time at which anything but the running task is
// due. A task that is before it may go on; one that isn't puts itself into the event queue
// and switches straight to the fiber of the task that comes first.
//
// Model (kernel/sched): a task is woken on its previous CPU if that is idle, else on an
// idle CPU of the same node, else on the nearest idle CPU, else it joins the shortest
// queue.  A new task goes to the node with the most idle CPUs (select_task_rq_fair with
// SD_BALANCE_FORK: the idlest group).  A CPU that would go idle takes a task from the
// longest queue.  A queue takes turns; no wake-up preemption, no priorities, no affinity,
// and no balancing beyond that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/cost_centre.h"
#include "sim/event_queue.h"
#include "sim/lock_stats.h"
#include "sim/task.h"
#include "sim/time.h"

namespace faultline {

class FiberHost;

// A state that an idle CPU sleeps in: see MachineShape::idle_states.
struct IdleSleep {
  Duration exit_latency, target_residency;
};

// What the engine knows of the machine.
struct MachineShape {
  std::vector<int> node_of_cpu;                 // one entry a CPU; nodes from 0
  std::vector<std::vector<int>> node_distance;  // SLIT; may be empty with one node
  // With 2, CPUs 2n and 2n+1 are the threads of one core; both busy do smt_gain
  // thousandths of what one does alone.  See smt.cc.
  int threads_per_core = 1;
  int smt_gain = 2000;
  // Shallow to deep.  A CPU that has been idle for a state's target residency is in it or a
  // deeper one; a task that is woken there waits for the exit, too.  Model: the governor
  // (drivers/cpuidle/governors/menu.c) guesses right.
  std::vector<IdleSleep> idle_states{};
};

struct SchedCosts {
  Duration slice = Duration::ms(4);         // of a task that shares its CPU
  Duration timer_slack = Duration::us(50);  // added to every sleep (PR_SET_TIMERSLACK)
  Duration context_switch{};                // charged to the task switched to
  Duration wakeup{};                        // charged to the waker (try_to_wake_up)
  Duration wakeup_latency{};                // from wake to running on an idle CPU
};

class Engine {
 public:
  Engine(MachineShape shape, SchedCosts costs);
  // Tasks that haven't finished are dropped without unwinding; see stop().
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts a task at `start` (not before now()); it is put on a CPU as a wake-up would,
  // near the task that calls this.
  Task& spawn(std::string name, std::function<void(Task&)> body, Time start);
  Task& spawn(std::string name, std::function<void(Task&)> body) {
    return spawn(std::move(name), std::move(body), now());
  }

  // A function to run at `when` in engine context (no task); order of equal times is by
  // priority, lower first, then by call.  It may wake tasks but not block.
  using EventId = std::uint64_t;
  EventId at(Time when, std::function<void()> event, int priority = 0);
  // Does nothing if the event has run or was cancelled.
  void cancel(EventId id);

  // Runs until every task that is not a daemon has finished.  A deadlock (tasks blocked,
  // nothing to happen) is our bug or the workload's: aborts with who waits for what.  An
  // exception that a task's body lets out ends the run and is thrown again here.
  void run();
  // Tasks spawned from now on are held to one order of taking locks; see lock_order.h.
  // Debug builds always do that.
  void check_lock_order();
  // Null if it is not checked.
  [[nodiscard]] const LockOrder* lock_order() const { return lock_order_.get(); }
  // Daemons (khugepaged, kswapd) don't keep run() going.
  void set_daemon(Task& task);
  // setpriority: -20 to 19; each step down is worth 1.25 times the CPU time beside others.
  // Stands for: sched_prio_to_weight (kernel/sched/core.c).  Model: it lengthens the task's
  // slices; queues are chosen without regard to it.
  void set_nice(Task& task, int nice);
  // Ends the tasks that are left (daemons) by unwinding their stacks.  Call it while what
  // they hold still lives.  They must not block on the way out.
  void stop() { stop_if(false); }
  // The same for daemons alone.
  void stop_daemons() { stop_if(true); }

  [[nodiscard]] Time now() const { return current_ != nullptr ? current_->now_ : now_; }
  // The task being run; null in engine context.
  [[nodiscard]] Task* current() const { return current_; }

  // Makes a blocked, sleeping or spinning task continue at `when` or later (wake-up
  // latency, wait for a CPU).  From a task: charges SchedCosts::wakeup to it if the woken
  // one was off its CPU.
  void wake(Task& task, Time when);

  // Tells `watcher` when `task` leaves or regains a CPU, until unwatch.  Called in the
  // middle of scheduling: it may wake tasks, nothing else.
  void watch(Task& task, CpuWatcher& watcher);
  void unwatch(Task& task, CpuWatcher& watcher);
  [[nodiscard]] bool on_cpu(const Task& task) const {
    return task.phase_ == Task::Phase::kOnCpu;
  }
  // Another task waits for this task's CPU and its slice is over.
  [[nodiscard]] bool need_resched(const Task& task) const {
    return !cpus_[static_cast<std::size_t>(task.cpu_)].queue.empty() &&
           task.now_ >= task.slice_end_;
  }
  // Gives the CPU to the next in its queue.  For a running task that found need_resched.
  void preempt(Task& task);

  // The running task stays on its CPU until `until`, until a wake, or, if asked for, until
  // another task should have the CPU; booked as `state`.  The caller finds out which by
  // looking.
  enum class OnResched : bool { kStay, kStop };
  void stay(Task& task, TaskState state, Time until, OnResched on_resched);

  // What the task has done since it was last synced was no work of its core: a busy
  // sibling doesn't make it longer.
  void begin_work(Task& task);

  // What the running task does until `when` can't be seen or changed by anyone.
  [[nodiscard]] bool nobody_due_until(Time when) const { return when < horizon_; }

  [[nodiscard]] const MachineShape& shape() const { return shape_; }
  [[nodiscard]] const SchedCosts& costs() const { return costs_; }
  [[nodiscard]] CentreTree& centres() { return centres_; }
  [[nodiscard]] const CentreTree& centres() const { return centres_; }
  [[nodiscard]] LockRegistry& locks() { return locks_; }
  [[nodiscard]] const LockRegistry& locks() const { return locks_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Task>>& tasks() const { return tasks_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }  // processed so far
  [[nodiscard]] Duration idle_time() const;                       // summed over CPUs

 private:
  friend class Task;
  struct Cpu {
    Task* running = nullptr;
    std::deque<Task*> queue;
    Time idle_since;
    Duration idle;
    Time busy_since;  // of the running task
    Duration busy;    // before that
  };
  struct Stopped {};  // thrown into a task that stop() unwinds

  // engine.cc: events and switching.
  std::uint64_t next_order(int priority);
  void push(const EventQueue::Entry& entry);
  void lower_horizon(Time when) {
    horizon_ = std::min(horizon_, when);
    task_horizon_ = std::min(task_horizon_, when);
  }
  void post(Task& task, Time when);
  [[nodiscard]] EventQueue::Entry new_entry(Task& task, Time when);
  [[nodiscard]] static bool stale(const EventQueue::Entry& entry);
  void run_callback(EventQueue::Callback& callback);
  void synchronise(Task& task);
  void give_way(Task& task);
  void let_first_go(Task& task);
  [[nodiscard]] Task* next_task();
  [[nodiscard]] Task* happens(const EventQueue::Entry& entry);
  void switch_to(Task* next, Task& from);
  void make_fiber(Task& task);
  void finish(Task& task);
  void stop_if(bool daemon_only);
  void set_horizon();
  void settle();
  [[noreturn]] void deadlock() const;
  void check_daemons_only(const Task& task);

  // scheduler.cc: CPUs and queues.
  void build_topology();
  void block(Task& task, TaskState state, Time until);
  void place(Task& task, Time when);
  [[nodiscard]] int choose_cpu(const Task& task) const;
  [[nodiscard]] int idle_cpu_near(int cpu) const;
  [[nodiscard]] int idlest_cpu(int parent_cpu) const;
  [[nodiscard]] int shortest_queue_near(int cpu) const;
  void enqueue(int cpu, Task& task, Time when);
  void put_on(int cpu, Task& task, Time when, Duration latency);
  [[nodiscard]] Duration idle_exit(int cpu, Time when) const;
  void leave_cpu(Task& task, Time when);
  [[nodiscard]] Task* steal_for(int cpu);
  void tell_watchers(Task& task, bool on_cpu);

  // smt.cc: hardware threads.
  [[nodiscard]] bool sibling_busy(int cpu) const;
  [[nodiscard]] Duration busy_time(int cpu, Time until) const;
  bool share_core(Task& task);
  void book_lost(Task& task, Duration more, Duration user, Duration worked);
  [[nodiscard]] bool core_idle(int cpu) const;
  [[nodiscard]] int idle_thread_of(const std::vector<int>& node, int near) const;
  [[nodiscard]] int pulling_core(Time when) const;
  void balance_cores(Task& task);
  [[nodiscard]] bool smt() const { return shape_.threads_per_core > 1; }
  Cpu& cpu_of(const Task& task) { return cpus_[static_cast<std::size_t>(task.cpu_)]; }

  MachineShape shape_;
  SchedCosts costs_;
  CentreTree centres_;
  LockRegistry locks_;
  std::unique_ptr<LockOrder> lock_order_;

  Time horizon_ = Time::never();
  // What tasks look at: horizon_, or zero where each sync has to ask for a busy sibling.
  Time task_horizon_ = Time::never();
  Time now_;  // of the last event or task due
  Task* current_ = nullptr;
  EventQueue queue_;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_ = 0;
  std::deque<EventQueue::Callback> callbacks_;
  std::vector<EventQueue::Callback*> free_callbacks_;

  std::vector<Cpu> cpus_;
  int idle_cpus_ = 0;
  int idle_cores_ = 0;      // with SMT: all threads idle
  std::size_t queued_ = 0;  // tasks in all CPUs' queues
  std::vector<std::vector<int>> cpus_of_node_;
  std::vector<std::vector<int>> nodes_by_distance_;  // from each node, itself first

  std::unique_ptr<FiberHost> fibers_;
  std::unique_ptr<Fiber> main_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::size_t live_ = 0;         // unfinished tasks that are not daemons
  Time last_live_;               // when one of them ran last
  std::size_t asleep_live_ = 0;  // of them: blocked with an entry, so something will happen
  std::exception_ptr failure_;
  bool stopping_ = false;
};

}  // namespace faultline
