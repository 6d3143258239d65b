// SPDX-License-Identifier: Apache-2.0
// The engine's CPUs: who runs where, who waits, who goes next.  See engine.h for the rules.
#include <algorithm>
#include <numeric>

#include "sim/check.h"
#include "sim/engine.h"

namespace faultline {
namespace {

constexpr Centre kSchedule{"__schedule", true};
constexpr Centre kTryToWakeUp{"try_to_wake_up", true};

std::size_t index(int n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

void Engine::build_topology() {
  const int nodes =
      1 + *std::max_element(shape_.node_of_cpu.begin(), shape_.node_of_cpu.end());
  cpus_of_node_.resize(index(nodes));
  for (std::size_t cpu = 0; cpu < cpus_.size(); ++cpu)
    cpus_of_node_[index(shape_.node_of_cpu[cpu])].push_back(static_cast<int>(cpu));
  const auto& distance = shape_.node_distance;
  FAULTLINE_CHECK(distance.empty() || distance.size() >= index(nodes));
  for (int from = 0; from < nodes; ++from) {
    std::vector<int> order(index(nodes));
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](int to) {
      if (to == from) return -1;
      return distance.empty() ? 0 : distance[index(from)][index(to)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return rank(a) < rank(b); });
    nodes_by_distance_.push_back(std::move(order));
  }
}

Duration Engine::idle_time() const {
  Duration sum;
  for (const Cpu& cpu : cpus_) {
    sum += cpu.idle;
    if (cpu.running == nullptr) sum += now() - cpu.idle_since;
  }
  return sum;
}

// --- leaving ---

// Off the CPU until a wake, or until `until`.
void Engine::block(Task& task, TaskState state, Time until) {
  FAULTLINE_CHECK_EQ(current_, &task);
  FAULTLINE_CHECK(task.preemptible());
  task.phase_ = Task::Phase::kBlocked;
  task.waiting_ = true;
  task.waiting_as_ = state;
  ++task.usage_.voluntary_switches;
  const bool timed = until != Time::never();
  if (timed) {
    post(task, until);
    if (!task.daemon_) ++asleep_live_;
  }
  leave_cpu(task, task.now_);
  give_way(task);
  begin_work(task);
  if (timed && !task.daemon_) --asleep_live_;
}

void Engine::preempt(Task& task) {
  FAULTLINE_CHECK_EQ(current_, &task);
  task.phase_ = Task::Phase::kQueued;
  task.waiting_ = true;
  task.waiting_as_ = TaskState::kRunnable;
  ++task.usage_.involuntary_switches;
  const Time when = task.now_;
  leave_cpu(task, when);
  const int shortest = shortest_queue_near(task.cpu_);
  enqueue(shortest, task, when);
  give_way(task);
  begin_work(task);
}

// The CPU goes to the next in its queue, else to one taken from the longest queue, else
// idle.
void Engine::leave_cpu(Task& task, Time when) {
  const int cpu = task.cpu_;
  Cpu& c = cpus_[index(cpu)];
  FAULTLINE_CHECK_EQ(c.running, &task);
  c.running = nullptr;
  c.idle_since = when;
  c.busy += std::max(when - c.busy_since, Duration{});
  ++idle_cpus_;
  if (smt() && core_idle(cpu)) ++idle_cores_;
  tell_watchers(task, false);
  Task* next = nullptr;
  if (!c.queue.empty()) {
    next = c.queue.front();
    c.queue.pop_front();
    --queued_;
  } else if (queued_ > 0) {
    next = steal_for(cpu);
  }
  if (next != nullptr) put_on(cpu, *next, when, Duration{});
}

Task* Engine::steal_for(int cpu) {
  Cpu* longest = nullptr;
  for (int node : nodes_by_distance_[index(shape_.node_of_cpu[index(cpu)])])
    for (int other : cpus_of_node_[index(node)]) {
      Cpu& o = cpus_[index(other)];
      if (longest == nullptr || o.queue.size() > longest->queue.size()) longest = &o;
    }
  Task* task = longest->queue.front();
  longest->queue.pop_front();
  --queued_;
  return task;
}

// --- coming ---

void Engine::wake(Task& task, Time when) {
  if (stopping_ || task.woken_) return;
  FAULTLINE_CHECK_GE(when, now());
  if (task.phase_ == Task::Phase::kOnCpu) {
    FAULTLINE_CHECK(task.staying_);  // else it isn't waiting: the wake would be lost
    const Time at = std::max(when, task.now_);
    if (task.entry_order_ == 0 || at < task.entry_time_) post(task, at);
    return;
  }
  FAULTLINE_CHECK(task.phase_ == Task::Phase::kBlocked);
  if (when <= now() && (current_ == nullptr || when < horizon_)) {
    task.entry_order_ = 0;
    place(task, when);
  } else if (task.entry_order_ == 0 || when < task.entry_time_) {
    post(task, when);
  }
  if (current_ != nullptr && costs_.wakeup > Duration{})
    current_->charge(kTryToWakeUp, costs_.wakeup);
}

// A task that was off the CPUs (new, blocked) gets one, or joins a queue.
void Engine::place(Task& task, Time when) {
  if (task.waiting_) task.book(task.where_, task.waiting_as_, when - task.now_);
  task.waiting_ = false;
  task.woken_ = true;
  const int cpu = choose_cpu(task);
  task.placed_ = true;
  if (cpus_[index(cpu)].running == nullptr) {
    put_on(cpu, task, when, costs_.wakeup_latency + idle_exit(cpu, when));
    return;
  }
  task.phase_ = Task::Phase::kQueued;
  task.waiting_ = true;
  task.waiting_as_ = TaskState::kRunnable;
  enqueue(cpu, task, when);
}

// From the state that the CPU fell into for as long as it has been idle.
Duration Engine::idle_exit(int cpu, Time when) const {
  Duration latency;
  const Duration idle = when - cpus_[index(cpu)].idle_since;
  for (const IdleSleep& state : shape_.idle_states) {
    if (idle < state.target_residency) break;
    latency = state.exit_latency;
  }
  return latency;
}

int Engine::choose_cpu(const Task& task) const {
  if (!task.placed_) return idlest_cpu(task.cpu_);
  if (cpus_[index(task.cpu_)].running == nullptr) return task.cpu_;
  return idle_cpus_ > 0 ? idle_cpu_near(task.cpu_) : shortest_queue_near(task.cpu_);
}

// The first idle CPU of the node that has most of them; of equal nodes the nearest.
int Engine::idlest_cpu(int parent_cpu) const {
  int best = -1;
  std::ptrdiff_t most = 0;
  for (int node : nodes_by_distance_[index(shape_.node_of_cpu[index(parent_cpu)])]) {
    const std::vector<int>& cpus = cpus_of_node_[index(node)];
    const auto idle = [&](int cpu) { return cpus_[index(cpu)].running == nullptr; };
    const std::ptrdiff_t count = std::count_if(cpus.begin(), cpus.end(), idle);
    if (count <= most) continue;
    most = count;
    best = smt() ? idle_thread_of(cpus, parent_cpu)
                 : *std::find_if(cpus.begin(), cpus.end(), idle);
  }
  return best >= 0 ? best : shortest_queue_near(parent_cpu);
}

int Engine::idle_cpu_near(int cpu) const {
  for (int node : nodes_by_distance_[index(shape_.node_of_cpu[index(cpu)])]) {
    if (smt()) {
      const int thread = idle_thread_of(cpus_of_node_[index(node)], cpu);
      if (thread >= 0) return thread;
      continue;
    }
    for (int other : cpus_of_node_[index(node)])
      if (cpus_[index(other)].running == nullptr) return other;
  }
  FAULTLINE_CHECK(false);
  return -1;
}

// `cpu` itself unless another one's queue is shorter; the nearest of those.
int Engine::shortest_queue_near(int cpu) const {
  int best = cpu;
  std::size_t length = cpus_[index(cpu)].queue.size();
  for (int node : nodes_by_distance_[index(shape_.node_of_cpu[index(cpu)])])
    for (int other : cpus_of_node_[index(node)]) {
      if (length == 0) return best;
      if (cpus_[index(other)].queue.size() >= length) continue;
      best = other;
      length = cpus_[index(other)].queue.size();
    }
  return best;
}

// Slices of a task that was alone on its CPU renewed themselves; the one that runs now ends
// as if they had been counted all the time.
void Engine::enqueue(int cpu, Task& task, Time when) {
  Cpu& c = cpus_[index(cpu)];
  task.cpu_ = cpu;
  task.node_ = shape_.node_of_cpu[index(cpu)];
  c.queue.push_back(&task);
  ++queued_;
  if (c.queue.size() > 1) return;
  Task& running = *c.running;
  if (running.slice_end_ <= when) {
    const std::int64_t over = (when - running.slice_end_).count_ps();
    running.slice_end_ += running.slice_ * (over / running.slice_.count_ps() + 1);
  }
  if (&running == current_) {
    lower_horizon(running.slice_end_);
  } else if (running.staying_ && running.stop_on_resched_) {
    const Time end = std::max(running.slice_end_, running.now_);
    if (running.entry_order_ == 0 || end < running.entry_time_) post(running, end);
  }
}

void Engine::set_nice(Task& task, int nice) {
  FAULTLINE_CHECK(nice >= -20 && nice <= 19);
  std::int64_t up = 1, down = 1;  // 1.25 to the power of -nice
  for (int i = nice; i < 0; ++i) up *= 5, down *= 4;
  for (int i = 0; i < nice; ++i) up *= 4, down *= 5;
  __extension__ using Wide = __int128;
  task.slice_ = Duration::ps(
      static_cast<std::int64_t>(static_cast<Wide>(costs_.slice.count_ps()) * up / down));
}

// The task has the CPU from `when` and runs after the latency and the switch.
void Engine::put_on(int cpu, Task& task, Time when, Duration latency) {
  Cpu& c = cpus_[index(cpu)];
  const Time runs = when + latency;
  task.book(task.where_, TaskState::kRunnable, runs - task.now_);
  task.waiting_ = false;
  task.phase_ = Task::Phase::kOnCpu;
  task.cpu_ = cpu;
  task.node_ = shape_.node_of_cpu[index(cpu)];
  task.slice_end_ = runs + task.slice_;
  if (smt() && core_idle(cpu)) --idle_cores_;
  c.running = &task;
  c.busy_since = runs;
  c.idle += runs - c.idle_since;
  --idle_cpus_;
  if (costs_.context_switch > Duration{}) task.charge(kSchedule, costs_.context_switch);
  post(task, task.now_);
  if (smt() && current_ != nullptr && current_->cpu_ == (cpu ^ 1)) task_horizon_ = Time{};
  tell_watchers(task, true);
}

// --- watchers ---

void Engine::watch(Task& task, CpuWatcher& watcher) {
  task.watchers_.push_back(&watcher);
}

void Engine::unwatch(Task& task, CpuWatcher& watcher) {
  const auto it = std::find(task.watchers_.begin(), task.watchers_.end(), &watcher);
  if (it != task.watchers_.end()) task.watchers_.erase(it);
}

void Engine::tell_watchers(Task& task, bool on_cpu) {
  for (std::size_t i = 0; i < task.watchers_.size(); ++i)
    task.watchers_[i]->on_cpu_change(task, on_cpu);
}

}  // namespace faultline
