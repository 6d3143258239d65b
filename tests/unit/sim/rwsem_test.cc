// SPDX-License-Identifier: Apache-2.0
// Each rule of the two rwsem generations as a small scenario with exact times (in
// microseconds).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "sim/locks.h"
#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

std::int64_t us(Time t) {
  return t.since_start().count_ps() / 1'000'000;
}
Duration in_state(const Task& t, TaskState s) {
  return t.usage().state[std::size_t(s)];
}

// Tasks that come at a time, take the lock and hold it for a while; each on its own CPU.
struct Crowd {
  explicit Crowd(RwSemRules rules, SchedCosts costs = {}, int cpu_count = 64)
      : engine(cpus(cpu_count), costs),
        sem(engine, engine.locks().of("mmap_lock"), {}, rules) {}

  Task& reader(const std::string& name, int at, int hold) {
    return engine.spawn(name, [this, at, hold](Task& t) {
      t.work(Duration::us(at) - t.now().since_start());
      sem.down_read(t);
      got[t.name()] = us(t.now());
      EXPECT_TRUE(sem.held_for_read_by(t));
      t.work(Duration::us(hold));
      sem.up_read(t);
    });
  }
  Task& writer(const std::string& name, int at, int hold) {
    return engine.spawn(name, [this, at, hold](Task& t) {
      t.work(Duration::us(at) - t.now().since_start());
      sem.down_write(t);
      got[t.name()] = us(t.now());
      EXPECT_TRUE(sem.held_for_write_by(t));
      t.work(Duration::us(hold));
      sem.up_write(t);
    });
  }

  using Times = std::map<std::string, std::int64_t>;
  Engine engine;
  RwSem sem;
  Times got;  // when each had the lock
};

constexpr SchedCosts kSlowWake{.wakeup_latency = 5_us};

// w1 is woken at 10 and runs at 15; w2 comes in between.
TEST(RwSem, Before39TheLockIsHandedToTheSleeperAndNobodyPasses) {
  for (const RwSemRules rules : {RwSemRules::k3_7, RwSemRules::k4_15}) {
    Crowd crowd(rules, kSlowWake, 64);
    crowd.reader("r0", 5, 10);
    crowd.writer("w1", 10, 10);
    crowd.writer("w2", 17, 1);
    crowd.engine.run();
    if (rules == RwSemRules::k3_7)
      EXPECT_EQ(crowd.got, (Crowd::Times{{"r0", 5}, {"w1", 20}, {"w2", 35}}));
    else
      EXPECT_EQ(crowd.got.at("w2"), 17);
  }
}

// r0 is inside; w1 queues, readers, w2 and another reader behind it.
Crowd::Times convoy(RwSemRules rules) {
  Crowd crowd(rules);
  crowd.reader("r0", 0, 100);
  crowd.writer("w1", 10, 100);
  crowd.reader("r1", 30, 100);
  crowd.reader("r2", 40, 100);
  crowd.writer("w2", 50, 100);
  crowd.reader("r3", 60, 100);
  crowd.engine.run();
  return crowd.got;
}

TEST(RwSem, K4_15WakesConsecutiveReadersOnly) {
  EXPECT_EQ(
      convoy(RwSemRules::k4_15),
      (Crowd::Times{
          {"r0", 0}, {"w1", 100}, {"r1", 200}, {"r2", 200}, {"w2", 300}, {"r3", 400}}));
}

TEST(RwSem, K5_3WakesAllQueuedReaders) {
  EXPECT_EQ(
      convoy(RwSemRules::k5_11),
      (Crowd::Times{
          {"r0", 0}, {"w1", 100}, {"r1", 200}, {"r2", 200}, {"r3", 200}, {"w2", 300}}));
}

TEST(RwSem, K5_3WakesNoMoreThan256ReadersAtOnce) {
  Crowd crowd(RwSemRules::k5_11, {}, 301);
  crowd.writer("w", 0, 100);
  for (int i = 0; i < 300; ++i) crowd.reader("r" + std::to_string(i), 10, 50);
  crowd.engine.run();
  EXPECT_EQ(crowd.got["r255"], 100);
  EXPECT_EQ(crowd.got["r256"], 150);
}

// The writer at the head was woken at 100 and needs 5 us to run; w2 comes in between.
TEST(RwSem, AWriterStealsFromTheOneOnItsWay) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules, kSlowWake);
    crowd.reader("r0", 10, 90);
    crowd.writer("w1", 20, 10);
    crowd.writer("w2", 102, 50);
    crowd.engine.run();
    EXPECT_EQ(crowd.got, (Crowd::Times{{"r0", 10}, {"w1", 157}, {"w2", 102}}));
  }
}

TEST(RwSem, OnlyK5_3LetsAReaderPassTheWriterOnItsWay) {
  const auto run = [](RwSemRules rules) {
    Crowd crowd(rules, kSlowWake);
    crowd.reader("r0", 10, 90);
    crowd.writer("w1", 20, 10);
    crowd.reader("r2", 102, 50);
    crowd.engine.run();
    return crowd.got;
  };
  EXPECT_EQ(run(RwSemRules::k4_15), (Crowd::Times{{"r0", 10}, {"w1", 105}, {"r2", 120}}));
  EXPECT_EQ(run(RwSemRules::k5_11), (Crowd::Times{{"r0", 10}, {"w1", 157}, {"r2", 102}}));
}

TEST(RwSem, AStealingReaderDoesntWakeReadersBehindAWriter) {
  Crowd crowd(RwSemRules::k5_11, kSlowWake);
  crowd.reader("r0", 10, 90);
  crowd.writer("w1", 20, 10);  // woken at 100, on its way until 105
  crowd.reader("r1", 50, 10);  // queued behind it
  crowd.reader("r2", 102, 50);
  crowd.engine.run();
  EXPECT_EQ(crowd.got, (Crowd::Times{{"r0", 10}, {"r2", 102}, {"w1", 157}, {"r1", 172}}));
}

TEST(RwSem, AWriterSpinsWhileTheWriterInsideRuns) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules, kSlowWake);
    crowd.writer("w0", 10, 100);
    Task& w1 = crowd.writer("w1", 20, 10);
    Task& w2 = crowd.writer("w2", 30, 10);
    crowd.engine.run();
    EXPECT_EQ(crowd.got, (Crowd::Times{{"w0", 10}, {"w1", 110}, {"w2", 120}}));
    EXPECT_EQ(in_state(w1, TaskState::kSpinning), 90_us);
    EXPECT_EQ(in_state(w2, TaskState::kSpinning), 90_us);
    EXPECT_EQ(in_state(w2, TaskState::kLockWait), 0_us);
  }
}

TEST(RwSem, ASpinnerStopsWhenTheOwnerBlocks) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules, {.timer_slack = {}, .wakeup_latency = 5_us});
    crowd.engine.spawn("w0", [&](Task& t) {
      crowd.sem.down_write(t);  // at 5
      t.work(45_us);
      t.sleep(30_us);  // runs again at 85
      t.work(15_us);
      crowd.sem.up_write(t);
    });
    Task& w1 = crowd.writer("w1", 10, 10);
    crowd.engine.run();
    EXPECT_EQ(crowd.got["w1"], 105);
    EXPECT_EQ(in_state(w1, TaskState::kSpinning), 40_us);
    EXPECT_EQ(in_state(w1, TaskState::kLockWait), 50_us);
    EXPECT_EQ(in_state(w1, TaskState::kRunnable), 10_us);
  }
}

TEST(RwSem, ASpinnerStopsWhenItsSliceIsOver) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules, {.slice = 4_ms}, 2);
    crowd.writer("w0", 0, 10'000);
    Task& w1 = crowd.writer("w1", 1'000, 10);
    Task& other = crowd.engine.spawn(
        "other", [](Task& t) { t.work(1_ms); }, Time(2_ms));
    crowd.engine.spawn(
        "more", [](Task& t) { t.work(9_ms); }, Time(2_ms));  // queues behind w0
    crowd.engine.run();
    EXPECT_EQ(in_state(w1, TaskState::kSpinning), 3_ms);
    EXPECT_GT(in_state(w1, TaskState::kLockWait), 0_ms);
    EXPECT_LE(other.now(), Time(9_ms));
  }
}

TEST(RwSem, K4_15NeverSpinsOnReaders) {
  Crowd crowd(RwSemRules::k4_15);
  crowd.reader("r0", 0, 100);
  Task& w1 = crowd.writer("w1", 10, 10);
  crowd.engine.run();
  EXPECT_EQ(crowd.got["w1"], 100);
  EXPECT_EQ(in_state(w1, TaskState::kSpinning), 0_us);
  EXPECT_EQ(in_state(w1, TaskState::kLockWait), 90_us);
}

TEST(RwSem, K5_3SpinsOnReadersForALimitedTime) {
  Crowd crowd(RwSemRules::k5_11);
  for (int i = 0; i < 4; ++i) crowd.reader("r" + std::to_string(i), 0, 100);
  Task& w1 = crowd.writer("w1", 10, 10);
  Task& w2 = crowd.writer("w2", 50, 10);
  crowd.engine.run();
  EXPECT_EQ(in_state(w1, TaskState::kSpinning), 12_us);  // (20 + 4) / 2
  EXPECT_EQ(in_state(w1, TaskState::kLockWait), 78_us);
  EXPECT_EQ(in_state(w2, TaskState::kSpinning), 0_us);  // marked as not worth spinning
  EXPECT_EQ(crowd.got["w1"], 100);
  EXPECT_EQ(crowd.got["w2"], 110);
}

TEST(RwSem, K5_3SpinnerTakesOverFromAShortReader) {
  Crowd crowd(RwSemRules::k5_11, kSlowWake);
  crowd.reader("r0", 10, 10);
  Task& w1 = crowd.writer("w1", 15, 10);
  crowd.engine.run();
  EXPECT_EQ(crowd.got["w1"], 20);
  EXPECT_EQ(in_state(w1, TaskState::kSpinning), 5_us);
}

// w1 waits behind a long reader; w2 steals, w3 would, too.
Crowd::Times steals(RwSemRules rules) {
  Crowd crowd(rules, kSlowWake);
  crowd.reader("r0", 10, 4'990);
  crowd.writer("w1", 20, 50);
  crowd.writer("w2", 5'002, 100);
  crowd.writer("w3", 5'050, 50);
  crowd.engine.run();
  return crowd.got;
}

TEST(RwSem, K5_3HandsOverToAWriterThatWaited4ms) {
  EXPECT_EQ(steals(RwSemRules::k5_11),
            (Crowd::Times{{"r0", 10}, {"w2", 5'002}, {"w1", 5'102}, {"w3", 5'152}}));
}

TEST(RwSem, K4_15LetsAWriterStarve) {
  EXPECT_EQ(steals(RwSemRules::k4_15),
            (Crowd::Times{{"r0", 10}, {"w2", 5'002}, {"w3", 5'102}, {"w1", 5'157}}));
}

TEST(RwSem, DowngradeLetsTheQueuedReadersIn) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules);
    crowd.engine.spawn("w0", [&](Task& t) {
      crowd.sem.down_write(t);
      t.work(50_us);
      crowd.sem.downgrade_write(t);
      EXPECT_FALSE(crowd.sem.held_for_write_by(t));
      EXPECT_TRUE(crowd.sem.held_for_read_by(t));
      t.work(100_us);
      crowd.sem.up_read(t);
    });
    crowd.reader("r1", 10, 10);
    crowd.reader("r2", 20, 10);
    crowd.writer("w1", 30, 10);
    crowd.engine.run();
    EXPECT_EQ(crowd.got, (Crowd::Times{{"r1", 50}, {"r2", 50}, {"w1", 150}}));
    EXPECT_EQ(crowd.engine.locks().of("mmap_lock").write.hold, 60_us);
  }
}

TEST(RwSem, TrylocksFailWhileSomebodyWaits) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules);
    crowd.reader("r0", 0, 100);
    crowd.engine.spawn("t", [&](Task& t) {
      t.work(5_us);
      EXPECT_FALSE(crowd.sem.down_write_trylock(t));
      EXPECT_TRUE(crowd.sem.down_read_trylock(t));
      crowd.sem.up_read(t);
      EXPECT_FALSE(crowd.sem.contended());
      t.work(45_us);  // w1 is in the queue
      EXPECT_TRUE(crowd.sem.contended());
      EXPECT_FALSE(crowd.sem.down_read_trylock(t));
      t.work(100_us);
      EXPECT_TRUE(crowd.sem.down_write_trylock(t));
      crowd.sem.up_write(t);
    });
    crowd.writer("w1", 10, 10);
    crowd.engine.run();
  }
}

TEST(RwSem, WaitsAreBookedAndBlamed) {
  static constexpr Centre kFault{"handle_mm_fault", true}, kMunmap{"vm_munmap", true};
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Crowd crowd(rules);
    crowd.engine.spawn("fault", [&](Task& t) {
      const Scope scope(t, kFault);
      crowd.sem.down_read(t);
      t.work(100_us);
      crowd.sem.up_read(t);
    });
    crowd.engine.spawn("munmap", [&](Task& t) {
      t.work(10_us);
      const Scope scope(t, kMunmap);
      crowd.sem.down_write(t);
      crowd.sem.up_write(t);
    });
    crowd.engine.run();
    const LockStats& stats = crowd.engine.locks().of("mmap_lock");
    EXPECT_EQ(stats.write.wait, 90_us);
    EXPECT_EQ(stats.write.contended, 1u);
    EXPECT_EQ(stats.read.hold_max, 100_us);
    ASSERT_EQ(stats.blames.size(), 1u);
    EXPECT_EQ(CentreTree::path(*stats.blames[0].waiter), "vm_munmap");
    EXPECT_EQ(CentreTree::path(*stats.blames[0].holder), "handle_mm_fault");
    EXPECT_EQ(stats.blames[0].holder_mode, LockMode::kRead);
    EXPECT_EQ(stats.blames[0].wait, 90_us);
    const bool old = rules == RwSemRules::k4_15;
    std::map<std::string, Duration> waits;
    for (const auto& n : crowd.engine.centres().nodes())
      for (TaskState s : {TaskState::kSpinning, TaskState::kLockWait})
        if (n.time[std::size_t(s)] > Duration{})
          waits[CentreTree::path(n)] += n.time[std::size_t(s)];
    EXPECT_EQ(waits,
              old ? (std::map<std::string, Duration>{
                        {"vm_munmap;rwsem_down_write_failed", 90_us}})
                  : (std::map<std::string, Duration>{
                        {"vm_munmap;rwsem_down_write_slowpath", Duration::ns(79'500)},
                        {"vm_munmap;rwsem_down_write_slowpath;rwsem_optimistic_spin",
                         Duration::ns(10'500)}}));
  }
}

// More tasks than CPUs, all costs on: nobody inside with a writer, all time attributed.
TEST(RwSem, ExclusionAndSumsHoldInACrowd) {
  for (const RwSemRules rules : {RwSemRules::k4_15, RwSemRules::k5_11}) {
    Engine engine(cpus(4), {.slice = 50_us,
                            .timer_slack = 1_us,
                            .context_switch = 1300_ns,
                            .wakeup = 900_ns,
                            .wakeup_latency = 3_us});
    RwSem sem(engine, engine.locks().of("s"), {.atomic = 11_ns, .handover = 97_ns}, rules);
    int readers = 0, writers = 0, both = 0;
    for (int i = 0; i < 23; ++i)
      engine.spawn("t" + std::to_string(i), [&, i](Task& t) {
        for (int n = 0; n < 60; ++n) {
          if ((i + n) % 4 == 0) {
            sem.down_write(t);
            t.sync();
            ++writers;
            both += writers > 1 || readers > 0;
            if (n % 8 == 0) t.sleep(2_us);
            t.work(Duration::ns(500 * (1 + n % 5)));
            --writers;
            if (n % 3 == 0) {
              sem.downgrade_write(t);
              t.work(1_us);
              sem.up_read(t);
            } else {
              sem.up_write(t);
            }
          } else {
            sem.down_read(t);
            t.sync();
            ++readers;
            both += writers > 0;
            t.work(Duration::us(1 + (i * n) % 40));
            --readers;
            sem.up_read(t);
          }
          t.work(Duration::us((7 * i + n) % 30));
        }
      });
    engine.run();
    EXPECT_EQ(both, 0);
    EXPECT_FALSE(sem.is_locked());
    const Sums s = sums(engine);
    EXPECT_EQ(s.in_tree, s.lifetimes);
    EXPECT_EQ(s.busy + engine.idle_time(), 4 * engine.now().since_start());
    const LockStats& stats = engine.locks().of("s");
    EXPECT_EQ(stats.write.acquired + stats.read.acquired, 23u * 60u + 23u * 60u / 4u / 3u);
    EXPECT_GT(stats.write.contended, 0u);
    EXPECT_GT(stats.read.contended, 0u);
  }
}

}  // namespace
}  // namespace faultline
