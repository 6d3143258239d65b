// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores that skip the look into the TLB count as accesses that never do.
#include <gtest/gtest.h>

#include <utility>

#include "kernel_model/tlb/tlb.h"
#include "tests/support/random.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr Addr kArea = 0x10'0000'0000;

using faultline::testing::Random;

arch::Profile profile_with_tlb(const char* name, unsigned cpus) {
  arch::Profile p = profile_of({.profile = name, .cpus = cpus});
  p.tlb_model = true;
  p.costs.memory_access = {};  // a touch takes as long as a load
  return p;
}

kernel::KernelConfig config() {
  kernel::KernelConfig c = kernel::load_preset("6.18");
  c.thp_enabled = kernel::ThpEnabled::kMadvise;
  c.khugepaged_run = false;
  return c;
}

enum class How { kFast, kSlow };

// As fast as may be, or by touches, which always look.
void access(Model& p, How how, Addr at, bool write) {
  if (how == How::kSlow)
    p.touch(at, 1, write ? Touch::kWrite : Touch::kRead);
  else if (write)
    p.store<std::uint8_t>(at, 1);
  else
    static_cast<void>(p.load<std::uint8_t>(at));
}

// Each thread: hot pages, cold pages, huge pages, discards, and now and then a sleep, after
// which it may be on another CPU.
void play(Model& p, unsigned index, void* arg) {
  const How how = *static_cast<const How*>(arg);
  Random random{index + 12345};
  const Addr hot = kArea + index * 16 * kMiB;
  const Addr cold = kArea + 256 * kMiB;
  for (int i = 0; i < 20'000; ++i) {
    const bool write = random.below(2) == 0;
    const std::uint64_t what = random.below(1000);
    if (what < 700)
      access(p, how, hot + random.below(10) * 4096 + random.below(4096), write);
    else if (what < 990)
      access(p, how, cold + random.below(32 * kMiB), write);
    else if (what < 995)
      p.madvise(cold + random.below(8000) * 4096, (1 + random.below(50)) * 4096,
                sys::kMadvDontneed);
    else
      p.usleep(random.below(20));
  }
}

struct Outcome {
  kernel::TlbStats stats;
  std::uint64_t faults = 0;
};

Outcome run(const char* profile_name, How how, unsigned threads, unsigned cpus) {
  const arch::Profile profile = profile_with_tlb(profile_name, cpus);
  Engine engine({profile.node_of_cpu, profile.node_distance}, {});
  kernel::Kernel kernel(engine, profile, config());
  kernel::Process& process = kernel.create_process("test");
  ModelProcess program(process);
  engine.spawn("main", [&](Task& task) {
    Model p(program, task);
    p.mmap(kArea, 512 * kMiB, sys::kProtRead | sys::kProtWrite,
           sys::kMapPrivate | sys::kMapAnonymous | sys::kMapFixed);
    p.madvise(kArea + 272 * kMiB, 16 * kMiB, sys::kMadvHugepage);
    p.run_threads(threads, play, &how);
  });
  engine.run();
  return {kernel.tlbs()->stats(process), process.minflt};
}

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.stats.l1_misses, b.stats.l1_misses);
  EXPECT_EQ(a.stats.l1_read_misses, b.stats.l1_read_misses);
  EXPECT_EQ(a.stats.walks, b.stats.walks);
  EXPECT_EQ(a.stats.vain_walks, b.stats.vain_walks);
  EXPECT_EQ(a.stats.flushes, b.stats.flushes);
  EXPECT_EQ(a.stats.time, b.stats.time);
  EXPECT_EQ(a.faults, b.faults);
}

TEST(TlbModel, SkippingTheLookChangesNoCount) {
  for (const char* profile : {"x86-4k", "arm64-4k", "arm64-64k", "power-hash-64k"}) {
    for (const auto& [threads, cpus] : {std::pair{1U, 1U}, {3U, 2U}, {4U, 4U}}) {
      SCOPED_TRACE(std::string(profile) + ", " + std::to_string(threads) + " threads");
      const Outcome fast = run(profile, How::kFast, threads, cpus);
      expect_equal(fast, run(profile, How::kSlow, threads, cpus));
      EXPECT_GT(fast.stats.l1_misses, fast.stats.walks);
      EXPECT_GT(fast.stats.walks, 100U);
    }
  }
}

TEST(TlbModel, AWalkTakesTheTaskTime) {
  const auto elapsed = [](bool with_tlb) {
    arch::Profile profile = profile_with_tlb("x86-4k", 1);
    profile.tlb_model = with_tlb;
    Engine engine({profile.node_of_cpu, profile.node_distance}, {});
    kernel::Kernel kernel(engine, profile, config());
    kernel::Process& process = kernel.create_process("test");
    ModelProcess program(process);
    Duration gone;
    engine.spawn("main", [&](Task& task) {
      Model p(program, task);
      p.mmap(kArea, 64 * kMiB, sys::kProtRead | sys::kProtWrite,
             sys::kMapPrivate | sys::kMapAnonymous | sys::kMapFixed);
      p.touch(kArea, 64 * kMiB, Touch::kWrite);
      p.cycles(1);
      p.usleep(0);
      const Time before = task.now();
      for (Addr at = kArea; at < kArea + 64 * kMiB; at += 16384)
        static_cast<void>(p.load<std::uint8_t>(at));
      p.usleep(0);  // books what is pending
      gone = task.now() - before;
      if (with_tlb) {
        EXPECT_EQ(kernel.tlbs()->stats(process).vain_walks, 64 * kMiB / 4096);
      }
    });
    engine.run();
    return gone;
  };
  const Duration with = elapsed(true), without = elapsed(false);
  // Every fourth page: each is a walk, with one more level every 2 MiB and at the start.
  const arch::Costs costs = profile_with_tlb("x86-4k", 1).costs;
  const std::int64_t walks = 64 * kMiB / 16384;
  EXPECT_GE(with - without, costs.tlb_miss_walk * walks);
  EXPECT_LE(with - without, (costs.tlb_miss_walk * walks) + costs.tlb_walk_level * 64);
}

}  // namespace
}  // namespace faultline::alloc::modelled
