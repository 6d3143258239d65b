// SPDX-License-Identifier: Apache-2.0
// Shadow page tables: what a guest's faults and flushes cost, and that they queue.
#include <gtest/gtest.h>

#include "kernel_model/mm/shadow_mmu.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

using namespace time_literals;

constexpr VirtAddr kAligned{32ULL << 20};

arch::Profile guest(arch::Virt virt) {
  arch::Profile p = toy_profile();
  p.virt = virt;
  p.costs.virt_exit = 1_us;
  p.costs.mmu_lock_fault = 10_us;
  p.costs.mmu_lock_sync = 5_us;
  return p;
}

KernelConfig base_pages() {
  KernelConfig config = toy_config("3.9");
  config.thp_enabled = ThpEnabled::kNever;
  return config;
}

const LockStats& mmu_lock(ToyMachine& m) {
  return m.engine.locks().of("kvm->mmu_lock");
}

Duration fault_time(arch::Virt virt) {
  ToyMachine m(guest(virt), base_pages());
  Duration took;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const Time start = t.now();
    m.write(t, kAligned + m.page());
    took = t.now() - start;
  });
  return took;
}

TEST(ShadowMmu, AFaultExitsTwiceAndIsEnteredUnderTheLock) {
  const Duration atomic = toy_profile().costs.lock_atomic;
  EXPECT_EQ(fault_time(arch::Virt::kKvmShadow) - fault_time(arch::Virt::kNone),
            2 * 1_us + 10_us + 2 * atomic);
}

TEST(ShadowMmu, AFlushComparesTheTables) {
  ToyMachine m(guest(arch::Virt::kKvmShadow), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + m.page());
    EXPECT_EQ(mmu_lock(m).write.acquired, 2U);
    sys_madvise(t, m.process(), kAligned, 8 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(mmu_lock(m).write.acquired, 3U);
  });
  EXPECT_GE(mmu_lock(m).write.hold, 25_us);
}

TEST(ShadowMmu, FaultsOfAllCpusQueue) {
  ToyMachine m(guest(arch::Virt::kKvmShadow), base_pages());
  constexpr int kTasks = 4, kPages = 8;
  m.run([&](Task& t) { m.mmap(t, kTasks * kPages, kAligned); });
  const Time start = m.engine.now();
  for (int i = 0; i < kTasks; ++i)
    m.add(
        [&m, i](Task& t) {
          for (int n = 0; n < kPages; ++n)
            m.write(t, kAligned + static_cast<std::uint64_t>(i * kPages + n) * m.page());
        },
        start.since_start());
  m.run_all();
  EXPECT_GE(m.engine.now() - start, kTasks * kPages * 10_us);
  EXPECT_GT(mmu_lock(m).write.contended, 0U);
}

TEST(ShadowMmu, NestedPagingHasNoSuchLock) {
  ToyMachine m(guest(arch::Virt::kKvm), base_pages());
  EXPECT_EQ(m.kernel.shadow_mmu(), nullptr);
}

}  // namespace
}  // namespace faultline::kernel::testing
