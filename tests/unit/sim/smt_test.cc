// SPDX-License-Identifier: Apache-2.0
// Two threads on a core: how much longer work takes, and who gets a whole core.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/bandwidth.h"
#include "sim/engine.h"
#include "sim/spin_lock.h"
#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

// Each busy thread does 625 thousandths of what it would do alone.
MachineShape cores(int n, int smt_gain = 1250) {
  MachineShape shape = cpus(2 * n);
  shape.threads_per_core = 2;
  shape.smt_gain = smt_gain;
  return shape;
}

// To the 50 ns of work that a task may owe.
#define EXPECT_ENDS(task, at) \
  EXPECT_NEAR((task).now().since_start().seconds(), Duration(at).seconds(), 81e-9)

Duration running(const Task& t) {
  return t.usage().state[std::size_t(TaskState::kRunning)];
}

TEST(Smt, WorkAloneOnACoreTakesAsLongAsEver) {
  Engine engine(cores(1), {});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  engine.run();
  EXPECT_ENDS(a, 10_ms);
}

TEST(Smt, TwoThreadsTogetherDoAQuarterMore) {
  Engine engine(cores(1), {});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  Task& b = engine.spawn("b", [](Task& t) { t.work(10_ms); });
  engine.run();
  EXPECT_ENDS(a, 16_ms);
  EXPECT_ENDS(b, 16_ms);
}

TEST(Smt, OtherCoresTakeNothing) {
  Engine engine(cores(2), {});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  Task& b = engine.spawn("b", [](Task& t) { t.work(10_ms); });
  engine.run();
  EXPECT_NE(a.cpu() / 2, b.cpu() / 2);
  EXPECT_ENDS(a, 10_ms);
  EXPECT_ENDS(b, 10_ms);
}

// b is there for 3.2 ms, which take 1.2 of a's work; charged in one piece or in many, and
// however far a has run ahead when b comes and goes.
TEST(Smt, OnlyTheTimeTogetherCounts) {
  for (const int pieces : {1, 7, 1000}) {
    Engine engine(cores(1), {.timer_slack = {}});
    Task& a = engine.spawn("a", [&](Task& t) {
      for (int i = 0; i < pieces; ++i) {
        t.charge(7_ms / pieces);
        t.sync();
      }
    });
    Task& b = engine.spawn(
        "b", [](Task& t) { t.charge(2_ms); }, Time(1_ms));
    engine.run();
    EXPECT_ENDS(b, 4200_us) << pieces;
    EXPECT_ENDS(a, 8200_us) << pieces;
  }
}

TEST(Smt, WhatIsLostIsWorkedOffAtTheRateOfThatTime) {
  Engine engine(cores(1), {});
  Task& a = engine.spawn("a", [](Task& t) {
    t.charge(10_ms);
    t.sync();
    t.charge(5_ms);
    t.sync();
  });
  engine.spawn("b", [](Task& t) { t.charge(7500_us); });
  engine.run();
  // 12 ms together are 7.5 ms of work; the other 7.5 are alone.
  EXPECT_ENDS(a, 19500_us);
}

TEST(Smt, ASleepingSiblingTakesNothing) {
  Engine engine(cores(1), {.timer_slack = {}});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  engine.spawn("b", [](Task& t) { t.sleep(20_ms); });
  engine.run();
  EXPECT_ENDS(a, 10_ms);
}

TEST(Smt, WhatMemoryMovesIsNotTheCoresWork) {
  Engine engine(cores(1), {});
  SharedBandwidth memory(engine, 10'000'000'000);
  Task& a =
      engine.spawn("a", [&](Task& t) { memory.transfer(t, 100'000'000, 10'000'000'000); });
  engine.spawn("b", [](Task& t) { t.work(10_ms); });
  engine.run();
  EXPECT_ENDS(a, 10_ms);
}

TEST(Smt, LostTimeIsSharedBetweenProgramAndKernel) {
  static constexpr Centre kMain{"main"}, kCall{"sys_call", true};
  Engine engine(cores(1), {});
  Task& a = engine.spawn("a", [](Task& t) {
    const Scope main(t, kMain);
    t.charge(3_ms);
    const Scope call(t, kCall);
    t.charge(1_ms);
    t.sync();
  });
  engine.spawn("b", [](Task& t) { t.work(20_ms); });
  engine.run();
  EXPECT_ENDS(a, 6400_us);
  EXPECT_NEAR(a.usage().user.seconds(), 4.8e-3, 81e-9);
  EXPECT_NEAR(a.usage().sys.seconds(), 1.6e-3, 81e-9);
}

TEST(Smt, ANewTaskTakesAWholeCoreBeforeASibling) {
  Engine engine(cores(2), {});
  std::vector<int> where;
  for (int i = 0; i < 4; ++i)
    engine.spawn("t", [&](Task& t) {
      where.push_back(t.cpu());
      t.work(1_ms);
    });
  engine.run();
  EXPECT_EQ(where, (std::vector<int>{0, 2, 1, 3}));
}

TEST(Smt, AWakeUpTakesAWholeCoreBeforeASibling) {
  Engine engine(cores(3), {.timer_slack = {}});
  const auto works = [](int cpu, Duration d) {
    return [cpu, d](Task& t) {
      EXPECT_EQ(t.cpu(), cpu);
      t.work(d);
    };
  };
  engine.spawn("a", works(0, 10_ms));
  engine.spawn("b", works(2, 10_ms));
  engine.spawn("c", works(4, 1_ms));
  engine.spawn("sleeper", [](Task& t) {
    EXPECT_EQ(t.cpu(), 1);
    t.sleep(3_ms);  // by then its CPU is taken; CPU 3 is idle, and the core that was c's
    EXPECT_EQ(t.cpu(), 4);
  });
  engine.spawn("thief", works(1, 10_ms), Time(500_us));
  engine.run();
}

// Both were put on one core while the other was busy.
TEST(Smt, ALongIdleCorePullsARunningTask) {
  Engine engine(cores(2), {.slice = 4_ms});
  const auto long_work = [](Task& t) {
    for (int i = 0; i < 100; ++i) t.work(1_ms);
  };
  Task& a = engine.spawn("a", long_work);
  engine.spawn("b", [](Task& t) { t.work(1_ms); });
  Task& c = engine.spawn("c", long_work);
  engine.run();
  EXPECT_NE(a.cpu() / 2, c.cpu() / 2);
  EXPECT_EQ(a.usage().involuntary_switches + c.usage().involuntary_switches, 1u);
  // Some 17 ms together, of which each loses three eighths.
  EXPECT_NEAR(a.now().since_start().seconds(), 0.1066, 0.0005);
  EXPECT_NEAR(c.now().since_start().seconds(), 0.1066, 0.0005);
}

TEST(Smt, AllTimeIsAttributedOnceAndRunsAreTheSame) {
  Engine one(cores(3), kChurnCosts), two(cores(3), kChurnCosts),
      whole(cpus(6), kChurnCosts);
  EXPECT_EQ(churn(one), churn(two));
  EXPECT_EQ(one.now(), two.now());
  EXPECT_EQ(one.events(), two.events());
  churn(whole);
  EXPECT_GT(one.now(), whole.now());
  const Sums s = sums(one);
  EXPECT_EQ(s.in_tree, s.lifetimes);
  EXPECT_EQ(s.in_usage, s.lifetimes);
  EXPECT_EQ(s.busy + one.idle_time(), 6 * one.now().since_start());
}

TEST(Smt, ThreadsThatShareNothingAreCores) {
  Engine engine(cores(1, 2000), {});
  Task& a = engine.spawn("a", [](Task& t) { t.work(10_ms); });
  engine.spawn("b", [](Task& t) { t.work(10_ms); });
  engine.run();
  EXPECT_ENDS(a, 10_ms);
  EXPECT_EQ(running(a), 10_ms);
}

}  // namespace
}  // namespace faultline
