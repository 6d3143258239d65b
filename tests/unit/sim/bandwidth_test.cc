// SPDX-License-Identifier: Apache-2.0
// Shared bandwidth: exact finishing times.  At 1 GB/s a thousand bytes are a microsecond.
#include "sim/bandwidth.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/sim/machine.h"

namespace faultline {
namespace {

using namespace time_literals;

constexpr std::uint64_t kGB = 1'000'000'000;

// Starts a transfer at a time; the task's end is when it was over.
Task& transfer(Engine& engine, SharedBandwidth& memory, Duration at, std::uint64_t bytes,
               std::uint64_t max_rate) {
  return engine.spawn(
      "t", [=, &memory](Task& t) { memory.transfer(t, bytes, max_rate); }, Time(at));
}

TEST(SharedBandwidth, AloneItRunsAtItsTopRate) {
  Engine engine(cpus(1), {});
  SharedBandwidth memory(engine, 10 * kGB);
  Task& t = transfer(engine, memory, 0_ns, 4'000, 2 * kGB);
  engine.run();
  EXPECT_EQ(t.now(), Time(2_us));
  EXPECT_EQ(t.usage().user, 2_us);
}

TEST(SharedBandwidth, EqualTransfersShareEqually) {
  Engine engine(cpus(3), {});
  SharedBandwidth memory(engine, 3 * kGB);
  Task& a = transfer(engine, memory, 0_ns, 2'000, 2 * kGB);
  Task& b = transfer(engine, memory, 0_ns, 2'000, 2 * kGB);
  Task& c = transfer(engine, memory, 0_ns, 3'000, 2 * kGB);
  engine.run();
  EXPECT_EQ(a.now(), Time(2_us));
  EXPECT_EQ(b.now(), Time(2_us));
  EXPECT_EQ(c.now(), Time(2500_ns));  // alone for the last thousand bytes, at its top rate
}

TEST(SharedBandwidth, WhatSlowOnesLeaveGoesToTheFast) {
  Engine engine(cpus(3), {});
  SharedBandwidth memory(engine, 10 * kGB);
  Task& fast = transfer(engine, memory, 0_ns, 12'000, 20 * kGB);
  Task& slow = transfer(engine, memory, 0_ns, 2'000, 1 * kGB);
  Task& middle = transfer(engine, memory, 0_ns, 6'000, 3 * kGB);
  engine.run();
  EXPECT_EQ(slow.now(), Time(2_us));
  EXPECT_EQ(middle.now(), Time(2_us));
  EXPECT_EQ(fast.now(), Time(2_us));  // 10 - 1 - 3 = 6 GB/s
}

TEST(SharedBandwidth, ALateComerSlowsTheOthersFromThenOn) {
  Engine engine(cpus(2), {});
  SharedBandwidth memory(engine, 2 * kGB);
  Task& a = transfer(engine, memory, 0_ns, 8'000, 2 * kGB);
  Task& b = transfer(engine, memory, 2_us, 1'000, 2 * kGB);
  engine.run();
  EXPECT_EQ(b.now(), Time(3_us));     // 1 GB/s each from 2 us on
  EXPECT_EQ(a.now(), Time(4500_ns));  // 4,000 left at 2 us, 3,000 at 3 us
}

TEST(SharedBandwidth, FractionsOfBytesArentLost) {
  Engine engine(cpus(3), {});
  SharedBandwidth memory(engine, 7);  // bytes a second: 3, 3 and 2 don't divide
  Task& a = transfer(engine, memory, 0_ns, 1, 3);
  engine.run();
  EXPECT_EQ(a.now(), Time(Duration::ps(333'333'333'334)));  // rounded up
}

TEST(SharedBandwidth, TheCpuIsSharedInSlices) {
  Engine engine(cpus(1), {.slice = 4_ms});
  SharedBandwidth memory(engine, 10 * kGB);
  Task& a = transfer(engine, memory, 0_ns, 6'000'000, 1 * kGB);
  Task& b = engine.spawn("b", [](Task& t) { t.work(5_ms); });
  engine.run();
  // a 0-4, b 4-8, a 8-10, b 10-11
  EXPECT_EQ(a.now(), Time(10_ms));
  EXPECT_EQ(b.now(), Time(11_ms));
}

TEST(SharedBandwidth, APreemptedTransferLeavesItsShare) {
  Engine engine(cpus(2), {.slice = 4_ms});
  SharedBandwidth memory(engine, 1 * kGB);
  Task& a = transfer(engine, memory, 0_ns, 6'000'000, 1 * kGB);   // CPU 0
  Task& b = transfer(engine, memory, 0_ns, 10'000'000, 1 * kGB);  // CPU 1
  Task& c = engine.spawn("c", [](Task& t) { t.work(3_ms); });     // queues on CPU 0
  engine.run();
  // Both at half rate until 4 ms (2 MB each); b alone until 7 ms (5 MB); then c's CPU is
  // a's again. Half rate until a's 4 MB are through at 15 ms; b's last MB at full rate.
  EXPECT_EQ(c.now(), Time(7_ms));
  EXPECT_EQ(a.now(), Time(15_ms));
  EXPECT_EQ(b.now(), Time(16_ms));
  EXPECT_EQ(a.usage().involuntary_switches, 1u);
}

TEST(SharedBandwidth, NoPreemptionUnderASpinlock) {
  Engine engine(cpus(1), {.slice = 1_ms});
  SharedBandwidth memory(engine, 1 * kGB);
  Task& a = engine.spawn("a", [&](Task& t) {
    t.preempt_disable();
    memory.transfer(t, 3'000'000, 1 * kGB);
    EXPECT_EQ(t.now(), Time(3_ms));
    t.preempt_enable();
  });
  engine.spawn("b", [](Task& t) { t.work(1_ms); });
  engine.run();
  EXPECT_EQ(a.now(), Time(4_ms));
}

TEST(SharedBandwidth, ACrowdUsesAllOfIt) {
  Engine engine(cpus(60), {});
  SharedBandwidth memory(engine, 12 * kGB);
  for (int i = 0; i < 60; ++i) transfer(engine, memory, 0_ns, 512'000'000, 5 * kGB);
  engine.run();
  EXPECT_EQ(engine.now(), Time(60 * 512_ms / 12));
}

}  // namespace
}  // namespace faultline
