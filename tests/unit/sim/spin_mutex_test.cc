// SPDX-License-Identifier: Apache-2.0
// The spinlock and the mutex: who gets it when, and how the waits are booked.
#include <gtest/gtest.h>

#include <string>

#include "sim/locks.h"
#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

constexpr LockCosts kCosts{.atomic = 10_ns, .handover = 100_ns};

TEST(SpinLock, WaitersSpinInOrderOfArrival) {
  Engine engine(cpus(3), {});
  LockStats& stats = engine.locks().of("ptl");
  SpinLock lock(engine, stats, kCosts);
  static constexpr Centre kHold{"hold", true};
  const auto body = [&](Duration before) {
    return [&lock, before](Task& t) {
      const Scope scope(t, kHold);
      t.charge(before);
      lock.lock(t);
      t.work(1_us);
      lock.unlock(t);
    };
  };
  Task& a = engine.spawn("a", body(0_ns));
  Task& b = engine.spawn("b", body(300_ns));
  Task& c = engine.spawn("c", body(200_ns));
  engine.run();
  // lock at 0, +10, work, unlock's 10: free at 1020; c has it at 1120, b at 2240.
  EXPECT_EQ(a.now(), Time(1020_ns));
  EXPECT_EQ(c.now(), Time(1120_ns + 1020_ns));
  EXPECT_EQ(b.now(), Time(2240_ns + 1020_ns));
  EXPECT_EQ(c.usage().state[std::size_t(TaskState::kSpinning)], 920_ns);
  EXPECT_EQ(b.usage().state[std::size_t(TaskState::kSpinning)], 1940_ns);
  EXPECT_EQ(stats.write.acquired, 3u);
  EXPECT_EQ(stats.write.contended, 2u);
  EXPECT_EQ(stats.write.wait, 2860_ns);
  EXPECT_EQ(stats.write.wait_max, 1940_ns);
  EXPECT_EQ(stats.write.hold, 3 * 1020_ns);
  ASSERT_EQ(stats.blames.size(), 1u);
  EXPECT_EQ(CentreTree::path(*stats.blames[0].waiter), "hold");
  EXPECT_EQ(stats.blames[0].count, 2u);
  bool found = false;
  for (const auto& node : engine.centres().nodes())
    if (CentreTree::path(node) == "hold;native_queued_spin_lock_slowpath") {
      found = true;
      EXPECT_EQ(node.time[std::size_t(TaskState::kSpinning)], 2860_ns);
    }
  EXPECT_TRUE(found);
}

TEST(SpinLock, TheHolderKeepsItsCpuPastTheSlice) {
  Engine engine(cpus(1), {.slice = 1_us});
  SpinLock lock(engine, engine.locks().of("l"), {});
  std::string order;
  engine.spawn("a", [&](Task& t) {
    lock.lock(t);
    t.work(5_us);
    order += "a";
    lock.unlock(t);
    t.sync();
    order += "A";
  });
  engine.spawn("b", [&](Task& t) {
    lock.lock(t);
    order += "b";
    lock.unlock(t);
  });
  engine.run();
  EXPECT_EQ(order, "abA");
}

// Four tasks take turns with a short critical section; waking a sleeper takes long.
Time short_sections(MutexSpin spin) {
  Engine engine(cpus(4), {.wakeup_latency = 50_us});
  LockStats& stats = engine.locks().of("m");
  SpinningMutex lock(engine, stats, kCosts, spin);
  for (int i = 0; i < 4; ++i)
    engine.spawn("t", [&](Task& t) {
      for (int k = 0; k < 100; ++k) {
        t.work(5_us);
        lock.lock(t);
        t.work(2_us);
        lock.unlock(t);
      }
    });
  engine.run();
  EXPECT_EQ(stats.write.acquired, 400u);
  return engine.now();
}

TEST(SpinningMutex, WhoSpinsDoesntPayForBeingWoken) {
  const Time spinning = short_sections(MutexSpin::kYes);
  EXPECT_LT(spinning, Time(1100_us));  // 4 x 100 sections of 2.1 us, one after the other
  EXPECT_GT(short_sections(MutexSpin::kNo), Time(1300_us));
}

TEST(SpinningMutex, NobodySpinsOnAnOwnerWithoutACpu) {
  Engine engine(cpus(2), {});
  SpinningMutex lock(engine, engine.locks().of("m"), kCosts, MutexSpin::kYes);
  engine.spawn("owner", [&](Task& t) {
    lock.lock(t);
    t.sleep(100_us);
    lock.unlock(t);
  });
  Task& waiter = engine.spawn("waiter", [&](Task& t) {
    t.charge(1_us);
    lock.lock(t);
    lock.unlock(t);
  });
  engine.run();
  EXPECT_EQ(waiter.usage().state[std::size_t(TaskState::kSpinning)], 0_ns);
  EXPECT_GE(waiter.usage().state[std::size_t(TaskState::kLockWait)], 98_us);
}

TEST(SpinningMutex, ASpinnerSleepsWhenTheOwnerLosesItsCpu) {
  Engine engine(cpus(2), {});
  SpinningMutex lock(engine, engine.locks().of("m"), kCosts, MutexSpin::kYes);
  engine.spawn("owner", [&](Task& t) {
    lock.lock(t);
    t.work(10_us);
    t.sleep(100_us);
    lock.unlock(t);
  });
  Task& waiter = engine.spawn("waiter", [&](Task& t) {
    t.charge(1_us);
    lock.lock(t);
    lock.unlock(t);
  });
  engine.run();
  EXPECT_GE(waiter.usage().state[std::size_t(TaskState::kSpinning)], 8_us);
  EXPECT_LE(waiter.usage().state[std::size_t(TaskState::kSpinning)], 11_us);
  EXPECT_GE(waiter.usage().state[std::size_t(TaskState::kLockWait)], 98_us);
}

TEST(Mutex, WaitersSleepAndGetItInOrder) {
  Engine engine(cpus(3), {.wakeup_latency = 2_us});
  LockStats& stats = engine.locks().of("arena");
  Mutex mutex(engine, stats, kCosts);
  std::string order;
  const auto body = [&](const char* name, Duration before) {
    return [&, name, before](Task& t) {
      t.charge(before);
      mutex.lock(t);
      order += name;
      t.work(1_us);
      mutex.unlock(t);
    };
  };
  Task& a = engine.spawn("a", body("a", 0_ns));
  Task& b = engine.spawn("b", body("b", 100_ns));
  engine.spawn("c", body("c", 50_ns));
  engine.run();
  EXPECT_EQ(order, "acb");
  // All start at 2 us; a frees it at 3.020, c has it at 3.120 and runs at 5.120 ...
  EXPECT_EQ(a.now(), Time(3020_ns));
  EXPECT_EQ(b.now(), Time(3020_ns + 2 * (100_ns + 2_us + 1020_ns)));
  EXPECT_EQ(stats.write.contended, 2u);
  EXPECT_EQ(b.usage().state[std::size_t(TaskState::kRunnable)], 4_us);
  EXPECT_EQ(b.usage().voluntary_switches, 1u);
}

TEST(Mutex, TryLock) {
  Engine engine(cpus(2), {});
  Mutex mutex(engine, engine.locks().of("m"), kCosts);
  engine.spawn("a", [&](Task& t) {
    EXPECT_TRUE(mutex.try_lock(t));
    t.work(1_us);
    mutex.unlock(t);
  });
  engine.spawn("b", [&](Task& t) {
    t.charge(500_ns);
    EXPECT_FALSE(mutex.try_lock(t));
    t.work(1_us);
    EXPECT_TRUE(mutex.try_lock(t));
    EXPECT_EQ(mutex.owner(), &t);
    mutex.unlock(t);
  });
  engine.run();
  EXPECT_EQ(mutex.owner(), nullptr);
}

TEST(MutexDeathTest, ADeadlockNamesLockAndHolder) {
  const auto deadlock = [] {
    Engine engine(cpus(2), {});
    Mutex a(engine, engine.locks().of("lock_a"), {}),
        b(engine, engine.locks().of("lock_b"), {});
    engine.spawn("ab", [&](Task& t) {
      a.lock(t);
      t.work(1_us);
      b.lock(t);
    });
    engine.spawn("ba", [&](Task& t) {
      b.lock(t);
      t.work(1_us);
      a.lock(t);
    });
    engine.run();
  };
  EXPECT_DEATH(deadlock(),
               "task 0 'ab' .*waits for lock_b held by task 1 'ba'\n.*task 1 'ba' .*"
               "waits for lock_a held by task 0 'ab'");
}

TEST(SpinLockDeathTest, UnlockByAnotherIsABug) {
  const auto wrong = [] {
    Engine engine(cpus(1), {});
    SpinLock lock(engine, engine.locks().of("l"), {});
    engine.spawn("t", [&](Task& t) { lock.unlock(t); });
    engine.run();
  };
  EXPECT_DEATH(wrong(), "owner_ == &task");
}

}  // namespace
}  // namespace faultline
