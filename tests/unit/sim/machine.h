// SPDX-License-Identifier: Apache-2.0
// Small machines for the tests of the engine.
#pragma once

#include <string>
#include <vector>

#include "sim/engine.h"
#include "sim/spin_lock.h"

namespace faultline {

inline MachineShape cpus(int n) {
  return {.node_of_cpu = std::vector<int>(static_cast<std::size_t>(n)),
          .node_distance = {}};
}

// Every picosecond is accounted for, once.
struct Sums {
  Duration in_tree, in_usage, lifetimes, busy;
};
inline Sums sums(Engine& engine) {
  Sums s;
  for (const auto& node : engine.centres().nodes())
    for (Duration d : node.time) s.in_tree += d;
  for (const auto& task : engine.tasks()) {
    for (Duration d : task->usage().state) s.in_usage += d;
    s.lifetimes += task->now() - task->started();
    s.busy += task->usage().user + task->usage().sys;
  }
  return s;
}

// Many tasks do everything at once; the books must balance to the picosecond.
inline std::vector<std::string> churn(Engine& engine) {
  using namespace time_literals;
  std::vector<std::string> log;
  static constexpr Centre kOuter{"outer"}, kInner{"sys_inner", true};
  SpinLock lock(engine, engine.locks().of("lock"), {.atomic = 17_ns, .handover = 71_ns});
  for (int i = 0; i < 20; ++i)
    engine.spawn(
        "t" + std::to_string(i),
        [&, i](Task& t) {
          const Scope outer(t, kOuter);
          for (int n = 0; n < 50; ++n) {
            t.charge(Duration::ns(100 + 7 * i));
            lock.lock(t);
            t.charge(kInner, 333_ns);
            log.push_back(t.name() + "@" +
                          std::to_string(t.now().since_start().count_ps()));
            lock.unlock(t);
            if (n % 7 == i % 7) t.sleep(Duration::us(i));
            t.work(Duration::us(30 * (n % 3)));
          }
        },
        Time(Duration::us(3 * i)));
  engine.run();
  return log;
}

inline constexpr SchedCosts kChurnCosts{.slice = Duration::us(100),
                                        .timer_slack = Duration::us(50),
                                        .context_switch = Duration::ns(1300),
                                        .wakeup = Duration::ns(900),
                                        .wakeup_latency = Duration::us(2)};

}  // namespace faultline
