// SPDX-License-Identifier: Apache-2.0
//
// Cores with two hardware threads: what a busy sibling takes from a task's work, and where
// the scheduler prefers a whole core.
//
// The one idea: work is charged as if the task had the core for itself, and made longer
// where the engine stops anyway.  When a task is the earliest of all, it is known for how
// long its sibling was busy while it worked; each picosecond of both together was worth
// smt_gain / 2 of one, and what is missing is added; what the sibling takes from that is
// added next, until hardly anything is left.
//
// Model: threads share a core evenly, whatever they do (a spinning sibling counts as busy);
// caches and TLBs are each thread's own.  What a memory node moves (SharedBandwidth) is not
// the core's work.
#include <utility>

#include "sim/engine.h"

namespace faultline {
namespace {

constexpr std::int64_t kThousand = 1000;
// Less than this is kept for the next time.
constexpr Duration kOweAtMost = Duration::ns(50);
// Leaves of the attribution tree: time that the sibling cost, by who lost it.
constexpr Centre kLostByUser{"[busy SMT sibling]", false};
constexpr Centre kLostByKernel{"[busy SMT sibling]", true};
// An idle core pulls a running task after so many balance intervals (a slice each): active
// balancing, kernel/sched/fair.c need_active_balance, nr_balance_failed > cache_nice_tries
// + 2.
constexpr std::int64_t kActiveBalanceIntervals = 4;

std::size_t index(int n) {
  return static_cast<std::size_t>(n);
}

// d * part / whole; a division of 128 bits takes the host many times longer.
Duration share_of(Duration d, Duration part, Duration whole) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(d.count_ps(), part.count_ps(), &product))
    return Duration::ps(product / whole.count_ps());
  __extension__ using Wide = __int128;
  return Duration::ps(
      static_cast<std::int64_t>(Wide{d.count_ps()} * part.count_ps() / whole.count_ps()));
}

}  // namespace

bool Engine::sibling_busy(int cpu) const {
  return cpus_[index(cpu ^ 1)].running != nullptr;
}

// So far, up to now: exact when nobody is due before.
Duration Engine::busy_time(int cpu, Time until) const {
  const Cpu& c = cpus_[index(cpu)];
  if (c.running == nullptr || until <= c.busy_since) return c.busy;
  return c.busy + (until - c.busy_since);
}

// What the task does from now on is work in the sense above.
void Engine::begin_work(Task& task) {
  if (shape_.threads_per_core == 1) return;
  Task::SharedCore& s = task.shared_core_;
  s.sibling_busy = busy_time(task.cpu_ ^ 1, task.now_);
  s.running = task.usage_.state[index(static_cast<int>(TaskState::kRunning))];
  s.user = task.usage_.user;
}

// Makes the work since the last time longer by what the sibling took; false if there is
// nothing to add.  The task is the earliest.
bool Engine::share_core(Task& task) {
  Task::SharedCore& s = task.shared_core_;
  const std::int64_t each = shape_.smt_gain / 2;  // of 1000, for each of two threads
  const Duration running = task.usage_.state[index(static_cast<int>(TaskState::kRunning))];
  const Duration worked = running - s.running;
  const Duration user = task.usage_.user - s.user;
  const Duration both =
      std::min(busy_time(task.cpu_ ^ 1, task.now_) - s.sibling_busy, worked);
  if (both > Duration{}) s.owed += both * (kThousand - each) / kThousand;
  begin_work(task);
  if (s.owed < kOweAtMost) return false;
  book_lost(task, std::exchange(s.owed, Duration{}), user, worked);
  return true;
}

// To the user's code and the kernel in the shares that they had of the work.
void Engine::book_lost(Task& task, Duration more, Duration user, Duration worked) {
  CentreTree::Node* program = task.where_;
  while (program->kernel) program = program->parent;
  Duration by_user = more;
  if (task.where_->kernel)
    by_user = worked > Duration{} ? share_of(more, user, worked) : Duration{};
  if (by_user > Duration{})
    task.book(centres_.child(program, kLostByUser), TaskState::kRunning, by_user);
  if (more > by_user)
    task.book(centres_.child(task.where_, kLostByKernel), TaskState::kRunning,
              more - by_user);
}

// --- where to ---

bool Engine::core_idle(int cpu) const {
  return cpus_[index(cpu)].running == nullptr && cpus_[index(cpu ^ 1)].running == nullptr;
}

// kernel/sched/fair.c select_idle_core (4.8) and before it select_idle_sibling's search of
// the groups below the shared cache: a core of which all threads are idle, else the idle
// sibling of the CPU asked for, else any idle one.  Negative: none on this node.
int Engine::idle_thread_of(const std::vector<int>& node, int near) const {
  int any = -1;
  for (const int cpu : node) {
    if (cpus_[index(cpu)].running != nullptr) continue;
    if (core_idle(cpu)) return cpu;
    if (any < 0 || cpu == (near ^ 1)) any = cpu;
  }
  return any;
}

// The core that has been idle for long enough to pull a running task from another one.
int Engine::pulling_core(Time when) const {
  const auto since = [this](int cpu) { return cpus_[index(cpu)].idle_since; };
  for (int cpu = 0; cpu < static_cast<int>(cpus_.size()); cpu += 2)
    if (core_idle(cpu) && when - std::max(since(cpu), since(cpu + 1)) >=
                              costs_.slice * kActiveBalanceIntervals)
      return cpu;
  return -1;
}

// active_load_balance_cpu_stop: the running task goes to a core that has long been idle.
void Engine::balance_cores(Task& task) {
  if (idle_cores_ == 0 || !task.preemptible() || !sibling_busy(task.cpu_)) return;
  const int to = pulling_core(task.now_);
  if (to < 0) return;
  const Time when = task.now_;
  ++task.usage_.involuntary_switches;
  leave_cpu(task, when);
  put_on(to, task, when, Duration{});
  give_way(task);
  begin_work(task);
}

}  // namespace faultline
