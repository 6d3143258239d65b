// SPDX-License-Identifier: Apache-2.0
//
// lru_lock and zone->lock: taken for batches, met by CPUs that fault at once, and not there
// on a machine that doesn't say what passes under them.
#include <algorithm>

#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr std::uint64_t kPages = 1400;

arch::Profile machine(Duration lru, Duration zone) {
  arch::Profile p = small_profile(256 * kMiB);
  p.costs.lru_lock_page = lru;
  p.costs.zone_lock_page = zone;
  return p;
}

struct Faults {
  Faults(Duration lru, Duration zone, int processes,
         const std::function<void(KernelConfig&)>& adjust = {})
      : profile(machine(lru, zone)), engine({profile.node_of_cpu, {}}, {}) {
    KernelConfig config = load_preset("4.15");
    config.thp_enabled = ThpEnabled::kNever;
    if (adjust) adjust(config);
    kernel = std::make_unique<Kernel>(engine, profile, config);
    for (int i = 0; i < processes; ++i) {
      Process& process = kernel->create_process("p" + std::to_string(i));
      engine.spawn("p" + std::to_string(i), [&process](Task& task) {
        const VirtAddr at = sys_mmap(task, process, {}, kPages * k4K, kRw, kAnon).value();
        EXPECT_EQ(user_touch(task, process, at, kPages * k4K, k4K, Access::kWrite),
                  Signal::kNone);
        EXPECT_EQ(sys_madvise(task, process, at, kPages * k4K, Madvise::kDontneed),
                  Errno::kOk);
      });
    }
    engine.run();
    check_invariants(*kernel);
  }
  const LockStats* lock(const std::string& name) const {
    const auto& all = engine.locks().all();
    const auto it = std::ranges::find(all, name, &LockStats::name);
    return it == all.end() ? nullptr : &*it;
  }

  arch::Profile profile;
  Engine engine;
  std::unique_ptr<Kernel> kernel;
};

TEST(PageLocks, AMachineThatSaysNothingHasNone) {
  const Faults run({}, {}, 1);
  EXPECT_EQ(run.lock("lru_lock"), nullptr);
  EXPECT_EQ(run.lock("zone->lock"), nullptr);
}

// 100 batches of 14 pages join, and batches of at most 32 leave.
TEST(PageLocks, LruLockIsTakenForBatches) {
  const Faults run(Duration::ns(30), {}, 1);
  const LockStats* lock = run.lock("lru_lock");
  ASSERT_NE(lock, nullptr);
  EXPECT_GE(lock->write.acquired, kPages / 14 + kPages / 32);
  EXPECT_LE(lock->write.acquired, kPages / 14 + kPages / 32 + 8);
  EXPECT_EQ(lock->write.contended, 0U);
  EXPECT_EQ(lock->write.hold, Duration::ns(30) * static_cast<std::int64_t>(2 * kPages));
}

TEST(PageLocks, ReleaseBatchesWereSmallerTo3_17) {
  const Faults run(Duration::ns(30), {}, 1, [](KernelConfig& c) { c.release_batch = 14; });
  EXPECT_GE(run.lock("lru_lock")->write.acquired, 2 * (kPages / 14));
}

TEST(PageLocks, AloneItCostsNothingMore) {
  const Faults with(Duration::ns(30), {}, 1);
  const Faults without({}, {}, 1);
  EXPECT_EQ(with.engine.now(), without.engine.now());
  EXPECT_EQ(with.kernel->vmstat().pgfault, without.kernel->vmstat().pgfault);
}

TEST(PageLocks, ZoneLockIsTakenForBatchesOfThePerCpuLists) {
  const Faults run({}, Duration::ns(50), 1);
  const LockStats* lock = run.lock("zone->lock");
  ASSERT_NE(lock, nullptr);
  const unsigned batch = run.kernel->phys().pcp_sizes_of(0).batch;
  EXPECT_GE(lock->write.acquired, kPages / batch);
  EXPECT_LE(lock->write.acquired, 2 * (kPages / batch) + 8);
  EXPECT_GE(lock->write.hold, Duration::ns(50) * static_cast<std::int64_t>(kPages));
}

TEST(PageLocks, CpusMeetThere) {
  const Faults few(Duration::ns(50), Duration::ns(50), 1);
  const Faults run(Duration::ns(50), Duration::ns(50), 4);
  EXPECT_GT(run.lock("lru_lock")->write.contended, 10U);
  EXPECT_GT(run.lock("zone->lock")->write.contended, 1U);
  EXPECT_GT(run.engine.now(), few.engine.now());
  EXPECT_EQ(run.kernel->vmstat().pgfault, 4 * few.kernel->vmstat().pgfault);
}

}  // namespace
}  // namespace faultline::kernel
