// SPDX-License-Identifier: Apache-2.0
// The engine's promises: order, time, CPUs and attribution.
#include "sim/engine.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

std::string at(const std::string& what, Time t) {
  return what + "@" + std::to_string(t.since_start().count_ps() / 1000);
}

TEST(Engine, EqualTimesGoByPriorityThenByCall) {
  Engine engine(cpus(1), {});
  std::string log;
  engine.at(Time(5_ns), [&] { log += "c"; });
  engine.at(Time(5_ns), [&] { log += "d"; });
  engine.at(
      Time(5_ns), [&] { log += "b"; }, -1);
  engine.at(
      Time(5_ns), [&] { log += "e"; }, 1);
  engine.at(
      Time(4_ns), [&] { log += "a"; }, 9);
  engine.spawn("last", [](Task& t) { t.work(10_ns); });
  engine.run();
  EXPECT_EQ(log, "abcde");
}

TEST(Engine, CancelledEventsDontRun) {
  Engine engine(cpus(1), {});
  int ran = 0;
  const auto a = engine.at(Time(1_ns), [&] { ran += 1; });
  engine.cancel(a);
  const auto b = engine.at(Time(2_ns), [&] { ran += 10; });
  engine.cancel(a);  // its slot is b's now
  engine.spawn("t", [&](Task& t) {
    t.work(5_ns);
    engine.cancel(b);
  });
  engine.run();
  EXPECT_EQ(ran, 10);
}

TEST(Engine, SyncOrdersTasksByTime) {
  Engine engine(cpus(3), {});
  std::vector<std::string> log;
  const auto body = [&](const char* name, Duration step) {
    return [&log, name, step](Task& t) {
      for (int i = 0; i < 3; ++i) {
        t.charge(step);
        t.sync();
        log.push_back(at(name, t.now()));
      }
    };
  };
  engine.spawn("a", body("a", 10_ns));
  engine.spawn("b", body("b", 15_ns));
  engine.spawn("c", body("c", 30_ns));
  engine.run();
  EXPECT_EQ(log, (std::vector<std::string>{"a@10", "b@15", "a@20", "c@30", "b@30", "a@30",
                                           "b@45", "c@60", "c@90"}));
}

TEST(Engine, SyncOnReturnSeesEverythingEarlier) {
  Engine engine(cpus(2), {});
  int value = 0;
  engine.at(Time(7_ns), [&] { value = 1; });
  engine.spawn("writer", [&](Task& t) {
    t.charge(9_ns);
    t.sync();
    value = 2;
  });
  engine.spawn("reader", [&](Task& t) {
    t.charge(8_ns);
    t.sync();
    EXPECT_EQ(value, 1);
    t.charge(2_ns);
    t.sync();
    EXPECT_EQ(value, 2);
  });
  engine.run();
}

TEST(Engine, SleepAddsTimerSlack) {
  Engine engine(cpus(1), {.timer_slack = 50_us});
  engine.spawn("sleeper", [](Task& t) {
    t.sleep(100_us);
    EXPECT_EQ(t.now(), Time(150_us));
    EXPECT_EQ(t.usage().state[std::size_t(TaskState::kSleeping)], 150_us);
    EXPECT_EQ(t.usage().voluntary_switches, 1u);
  });
  engine.run();
  EXPECT_EQ(engine.idle_time(), 150_us);
}

TEST(Engine, WakeEndsASleepEarly) {
  Engine engine(cpus(2), {});
  Task& sleeper = engine.spawn("sleeper", [](Task& t) {
    t.sleep(100_us);
    EXPECT_EQ(t.now(), Time(3_us));
    t.sleep(10_us);  // the timer of the first sleep must not end this one
    EXPECT_EQ(t.now(), Time(63_us));
  });
  engine.spawn("waker", [&](Task& t) {
    t.work(3_us);
    engine.wake(sleeper, t.now());
    t.work(1_ms);
  });
  engine.run();
}

TEST(Engine, WakeUpCostsAreWhereTheyBelong) {
  Engine engine(
      cpus(2),
      {.timer_slack = {}, .context_switch = 2_us, .wakeup = 3_us, .wakeup_latency = 5_us});
  Task& sleeper = engine.spawn("sleeper", [](Task& t) {
    EXPECT_EQ(t.now(), Time(7_us));  // latency and switch of the start
    t.block(TaskState::kSleeping);
    EXPECT_EQ(t.now(), Time(107_us));
    EXPECT_EQ(t.usage().state[std::size_t(TaskState::kSleeping)], 93_us);
    EXPECT_EQ(t.usage().state[std::size_t(TaskState::kRunnable)], 10_us);
    EXPECT_EQ(t.usage().sys, 4_us);
  });
  engine.spawn("waker", [&](Task& t) {
    t.work(93_us);
    engine.wake(sleeper, t.now());
    EXPECT_EQ(t.now(), Time(103_us));
  });
  engine.run();
}

TEST(Engine, SpawnFromATaskStartsAtItsTime) {
  Engine engine(cpus(2), {});
  engine.spawn("parent", [&](Task& t) {
    t.work(10_us);
    engine.spawn("child", [](Task& c) { EXPECT_EQ(c.now(), Time(10_us)); });
  });
  engine.run();
  EXPECT_EQ(engine.tasks().size(), 2u);
}

TEST(Engine, ExceptionsComeOutOfRun) {
  Engine engine(cpus(1), {});
  int caught = 0;
  engine.spawn("thrower", [&](Task& t) {
    for (int i = 0; i < 5; ++i) {
      try {
        t.work(1_us);
        throw std::runtime_error("inside");
      } catch (const std::runtime_error&) {
        ++caught;
      }
    }
    throw std::runtime_error("outside");
  });
  engine.spawn("other", [](Task& t) { t.work(1_ms); });
  EXPECT_THROW(engine.run(), std::runtime_error);
  EXPECT_EQ(caught, 5);
}

TEST(Engine, StopUnwindsDaemons) {
  Engine engine(cpus(1), {});
  std::string log;
  struct Note {
    std::string& log;
    ~Note() { log += "unwound"; }
  };
  Task& daemon = engine.spawn("khugepaged", [&](Task& t) {
    const Note note{log};
    const std::vector<int> owned(1000);
    for (;;) t.sleep(10_ms);
  });
  engine.set_daemon(daemon);
  engine.spawn("main", [](Task& t) { t.work(35_ms); });
  engine.run();
  EXPECT_EQ(engine.now(), Time(35_ms));
  EXPECT_EQ(log, "");
  engine.stop();
  EXPECT_EQ(log, "unwound");
}

TEST(Engine, RunGoesOnWhereItStopped) {
  Engine engine(cpus(2), {.timer_slack = {}});
  int ticks = 0;
  Task& daemon = engine.spawn("daemon", [&](Task& t) {
    for (;; ++ticks) t.sleep(10_ms);
  });
  engine.set_daemon(daemon);
  engine.spawn("first", [](Task& t) { t.work(35_ms); });
  engine.run();
  EXPECT_EQ(ticks, 3);
  engine.spawn("second", [](Task& t) { t.work(20_ms); });
  engine.run();
  EXPECT_EQ(engine.now(), Time(55_ms));
  EXPECT_EQ(ticks, 5);
  engine.stop();
}

TEST(EngineDeathTest, DeadlockSaysWhoWaits) {
  const auto deadlock = [] {
    static constexpr Centre kPlace{"pthread_join"};
    Engine engine(cpus(1), {});
    engine.spawn("lonely", [](Task& t) {
      const Scope scope(t, kPlace);
      t.work(2_us);
      t.set_waiting_for("a child");
      t.block(TaskState::kSleeping);
    });
    Task& daemon = engine.spawn("kswapd", [](Task& t) {
      for (;;) t.sleep(100_ms);
    });
    engine.set_daemon(daemon);
    engine.run();
  };
  EXPECT_DEATH(deadlock(),
               "deadlock at .*\n.*task 0 'lonely' on CPU 0, sleeping since t=2000000 ps "
               "in pthread_join, waits for a child");
}

TEST(EngineDeathTest, WakingATaskThatRunsIsABug) {
  const auto lost = [] {
    Engine engine(cpus(2), {});
    Task& busy = engine.spawn("busy", [](Task& t) {
      t.charge(10_us);
      t.sync();
    });
    engine.spawn("waker", [&](Task& t) { engine.wake(busy, t.now()); });
    engine.run();
  };
  EXPECT_DEATH(lost(), "task.staying_");
}

}  // namespace
}  // namespace faultline
