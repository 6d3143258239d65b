// SPDX-License-Identifier: Apache-2.0
// Who gets which CPU, and for how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/engine.h"
#include "sim/spin_lock.h"
#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

Duration in_state(const Task& t, TaskState s) {
  return t.usage().state[std::size_t(s)];
}

TEST(Scheduler, TwoTasksTakeTurnsInSlices) {
  Engine engine(cpus(1), {.slice = 4_ms});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  Task& b = engine.spawn("b", [](Task& t) { t.work(6_ms); });
  engine.run();
  // a 0-4, b 4-8, a 8-12, b 12-14, a 14-16
  EXPECT_EQ(b.now(), Time(14_ms));
  EXPECT_EQ(a.now(), Time(16_ms));
  EXPECT_EQ(a.usage().involuntary_switches, 2u);
  EXPECT_EQ(b.usage().involuntary_switches, 1u);
  EXPECT_EQ(in_state(a, TaskState::kRunnable), 6_ms);
  EXPECT_EQ(in_state(b, TaskState::kRunnable), 8_ms);
  EXPECT_EQ(engine.idle_time(), Duration{});
}

// Five steps of 1.25 are 3.05; twenty are 86.7.
TEST(Scheduler, NiceSharesACpuByWeight) {
  for (const auto& [nice, share] :
       {std::pair{0, 0.5}, {-5, 0.753}, {-20, 0.989}, {5, 0.247}}) {
    Engine engine(cpus(1), {.slice = 4_ms});
    Task& a = engine.spawn("a", [](Task& t) { t.work(100 * 1000_ms); });
    engine.spawn("b", [](Task& t) { t.work(100 * 1000_ms); });
    engine.set_nice(a, nice);
    double seen = 0;
    engine.at(Time(50 * 1000_ms), [&] {
      seen = static_cast<double>(in_state(a, TaskState::kRunning).count_ps());
    });
    engine.run();
    EXPECT_NEAR(seen / 50e12, share, 0.01) << nice;
  }
}

TEST(Scheduler, SixtyTasksShareTwoCpusFairly) {
  Engine engine(cpus(2), {.slice = 4_ms});
  for (int i = 0; i < 60; ++i)
    engine.spawn("t" + std::to_string(i), [](Task& t) { t.work(39_ms); });
  engine.run();
  Time first = Time::never(), last;
  for (const auto& t : engine.tasks()) {
    first = std::min(first, t->now());
    last = std::max(last, t->now());
    EXPECT_EQ(in_state(*t, TaskState::kRunning), 39_ms);
  }
  EXPECT_EQ(last, Time(30 * 39_ms));
  EXPECT_EQ(last - first, 29 * 3_ms);  // the last round of 30 tasks on each CPU
  EXPECT_EQ(engine.idle_time(), Duration{});
}

TEST(Scheduler, ALateComerWaitsOnlyForTheRunningSlice) {
  Engine engine(cpus(1), {.slice = 4_ms});
  engine.spawn("long", [](Task& t) { t.work(100_ms); });
  Task& late = engine.spawn(
      "late", [](Task& t) { t.work(1_ms); }, Time(10_ms));
  engine.run();
  EXPECT_EQ(late.now(), Time(13_ms));  // slices of the other end at 4, 8, 12
}

TEST(Scheduler, ChargeIsNotInterruptedButSyncIs) {
  Engine engine(cpus(1), {.slice = 4_ms});
  Task& a = engine.spawn("a", [](Task& t) {
    t.charge(10_ms);
    t.sync();
    t.charge(1_ms);
  });
  Task& b = engine.spawn("b", [](Task& t) { t.charge(1_ms); });
  engine.run();
  EXPECT_EQ(b.now(), Time(11_ms));
  EXPECT_EQ(a.now(), Time(12_ms));
}

TEST(Scheduler, NoPreemptionWhileDisabled) {
  Engine engine(cpus(1), {.slice = 4_ms});
  engine.spawn("a", [](Task& t) {
    t.preempt_disable();
    t.work(6_ms);
    EXPECT_EQ(t.now(), Time(6_ms));
    t.preempt_enable();
    t.sync();
    EXPECT_EQ(t.now(), Time(7_ms));
  });
  engine.spawn("b", [](Task& t) { t.work(1_ms); });
  engine.run();
}

TEST(Scheduler, NewTasksSpreadOverTheNodes) {
  // Two nodes of two CPUs, and a far third one.
  Engine engine({.node_of_cpu = {0, 0, 1, 1, 2, 2},
                 .node_distance = {{10, 40, 20}, {40, 10, 20}, {20, 20, 10}}},
                {});
  std::vector<int> where;
  for (int i = 0; i < 6; ++i)
    engine.spawn("t", [&](Task& t) {
      where.push_back(t.cpu());
      t.work(1_ms);
    });
  engine.spawn("seventh", [&](Task& t) {
    EXPECT_EQ(t.cpu(), 0);
    EXPECT_EQ(t.node(), 0);
  });
  engine.run();
  EXPECT_EQ(where, (std::vector<int>{0, 4, 2, 1, 5, 3}));
}

TEST(Scheduler, WakesNearThePreviousCpu) {
  Engine engine({.node_of_cpu = {0, 0, 1, 1}, .node_distance = {{10, 20}, {20, 10}}}, {});
  engine.spawn("a", [](Task& t) {
    EXPECT_EQ(t.cpu(), 0);
    t.sleep(5_ms);  // b has CPU 0 by then
    EXPECT_EQ(t.cpu(), 1);
  });
  engine.spawn(
      "b",
      [](Task& t) {
        EXPECT_EQ(t.cpu(), 0);
        t.work(10_ms);
      },
      Time(1_ms));
  engine.run();
}

TEST(Scheduler, ASleeperComesBackToItsCpu) {
  Engine engine(cpus(4), {});
  engine.spawn("a", [](Task& t) { t.work(1_ms); });
  engine.spawn("b", [](Task& t) {
    EXPECT_EQ(t.cpu(), 1);
    t.sleep(5_ms);  // CPU 0 is idle by then
    EXPECT_EQ(t.cpu(), 1);
  });
  engine.run();
}

TEST(Scheduler, AnIdleCpuTakesFromTheLongestQueue) {
  Engine engine(cpus(2), {.slice = 100_ms});
  engine.spawn("a", [](Task& t) { t.work(10_ms); });
  engine.spawn("b", [](Task& t) { t.work(1_ms); });
  Task& c = engine.spawn("c", [](Task& t) { t.work(1_ms); });
  Task& d = engine.spawn("d", [](Task& t) { t.work(1_ms); });
  Task& e = engine.spawn("e", [](Task& t) { t.work(1_ms); });
  engine.run();
  // b's CPU has d queued, then takes c and e from a's.
  EXPECT_EQ(d.now(), Time(2_ms));
  EXPECT_EQ(c.now(), Time(3_ms));
  EXPECT_EQ(e.now(), Time(4_ms));
}

TEST(Scheduler, WatchersSeeATaskLeaveAndReturn) {
  struct Log final : CpuWatcher {
    std::string text;
    void on_cpu_change(Task& t, bool on_cpu) override {
      text += (on_cpu ? "+" : "-") +
              std::to_string(t.engine().now().since_start().count_ps() / 1000000);
    }
  } log;
  Engine engine(cpus(1), {.slice = 4_ms, .timer_slack = {}});
  Task& a = engine.spawn("a", [](Task& t) {
    t.sleep(5_us);
    t.work(1_us);
  });
  engine.watch(a, log);
  engine.run();
  EXPECT_EQ(log.text, "+0-0+5-6");
}

// A CPU that has been idle for 10 us is in the first state, after 200 in the second.
TEST(Scheduler, AWakeUpWaitsForTheIdleStateThatTheCpuIsIn) {
  MachineShape shape = cpus(2);
  shape.idle_states = {{2_us, 10_us}, {50_us, 200_us}};
  Engine engine(shape, {.wakeup_latency = 1_us});
  Task& sleeper = engine.spawn("sleeper", [](Task& t) {
    for (const Duration idle : {5_us, 10_us, 199_us, 200_us, 5_us}) {
      const Time start = t.now();
      t.engine().at(start + idle, [&t] { t.engine().wake(t, t.engine().now()); });
      t.block(TaskState::kSleeping);
      const Duration exit = idle < 10_us ? 0_us : idle < 200_us ? 2_us : 50_us;
      EXPECT_EQ(t.now() - start, idle + 1_us + exit);
    }
  });
  engine.run();
  EXPECT_EQ(in_state(sleeper, TaskState::kSleeping), 419_us);
}

// Ticket locks: with three waiters a hand-over takes two waiters' worth longer.
TEST(Scheduler, WaitersMayMakeHandOversDearer) {
  Engine engine(cpus(4), {});
  SpinLock lock(engine, engine.locks().of("lock"),
                {.atomic = {}, .handover = 100_ns, .handover_waiter = 10_ns});
  for (int i = 0; i < 4; ++i)
    engine.spawn("t", [&](Task& t) {
      lock.lock(t);
      t.charge(1_us);
      lock.unlock(t);
    });
  engine.run();
  EXPECT_EQ(engine.now(), Time(4_us + 120_ns + 110_ns + 100_ns));
}

TEST(Scheduler, AllTimeIsAttributedOnce) {
  Engine engine(cpus(3), kChurnCosts);
  churn(engine);
  const Sums s = sums(engine);
  EXPECT_EQ(s.in_tree, s.lifetimes);
  EXPECT_EQ(s.in_usage, s.lifetimes);
  EXPECT_EQ(s.busy + engine.idle_time(), 3 * engine.now().since_start());
  EXPECT_GT(engine.idle_time(), Duration{});
}

TEST(Scheduler, TwoRunsAreTheSame) {
  Engine one(cpus(3), kChurnCosts), two(cpus(3), kChurnCosts);
  EXPECT_EQ(churn(one), churn(two));
  EXPECT_EQ(one.events(), two.events());
  EXPECT_EQ(one.now(), two.now());
}

}  // namespace
}  // namespace faultline
