// SPDX-License-Identifier: Apache-2.0
//
// Fragmented memory: who puts a huge page together, what moves, when nobody tries.
#include "kernel_model/mm/compaction.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernel_model/mm/vmscan.h"
#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr std::uint64_t k2M = 2 * kMiB;

// Every other page of most of the memory is in use.
struct Fragmented : Small {
  explicit Fragmented(const std::function<void(KernelConfig&)>& adjust = {})
      : Small([&](KernelConfig& c) {
          c.thp_enabled = ThpEnabled::kMadvise;
          c.min_free_kbytes = 512;  // so that the reserve isn't one large block
          c.overcommit_memory = 1;
          if (adjust) adjust(c);
        }) {}
  VirtAddr fragment(Task& task, bool huge_pages = true) {
    const VirtAddr p = map(task, 126 * kMiB);
    const Madvise advice = huge_pages ? Madvise::kNormal : Madvise::kNohugepage;
    EXPECT_EQ(sys_madvise(task, *process, p, 126 * kMiB, advice), Errno::kOk);
    std::uint64_t bytes = 0;
    for (; free() > kernel->phys().watermarks(0).low + 64; bytes += 16 * k4K)
      EXPECT_EQ(touch(task, p + bytes, 16 * k4K), Signal::kNone);
    for (std::uint64_t at = 0; at < bytes; at += 2 * k4K)
      EXPECT_EQ(sys_madvise(task, *process, p + at, k4K, Madvise::kDontneed), Errno::kOk);
    return p;
  }
  // A huge page's worth, advised.
  VirtAddr advised(Task& task, std::uint64_t pages = 1) {
    const VirtAddr p = map(task, (pages + 1) * k2M);
    const VirtAddr q{(p.v + k2M - 1) & ~(k2M - 1)};
    EXPECT_EQ(sys_madvise(task, *process, q, pages * k2M, Madvise::kHugepage), Errno::kOk);
    return q;
  }
};

TEST(Compaction, AnAdvisedFaultMovesPagesTogether) {
  Fragmented m;
  m.run([&](Task& task) {
    const VirtAddr p = m.fragment(task);
    const Pfn before = m.process->mm().pages().look(p + k4K).pfn;
    m.kernel->contents()->wrote(before, 9);
    EXPECT_GT(m.kernel->mm_shared().compaction().fragmentation_index(0, 9), 500);
    const std::uint64_t rss = m.process->mm().rss_anon;
    EXPECT_EQ(user_access(task, *m.process, m.advised(task), Access::kWrite),
              Signal::kNone);
    EXPECT_EQ(m.vmstat().thp_fault_alloc, 1U);
    EXPECT_EQ(m.vmstat().thp_fault_fallback, 0U);
    EXPECT_EQ(m.vmstat().compact_success, 1U);
    EXPECT_GT(m.vmstat().pgmigrate_success, 100U);
    EXPECT_EQ(m.process->mm().rss_anon, rss + 512);
    EXPECT_EQ(m.process->majflt, 0U);
    EXPECT_EQ(m.kernel->contents()->byte(m.process->mm().pages().look(p + k4K).pfn), 9);
  });
}

TEST(Compaction, MovingCostsTime) {
  Fragmented m;
  m.run([&](Task& task) {
    m.fragment(task);
    const VirtAddr q = m.advised(task);
    const Time before = task.now();
    EXPECT_EQ(user_access(task, *m.process, q, Access::kWrite), Signal::kNone);
    const auto moved = static_cast<std::int64_t>(m.vmstat().pgmigrate_success);
    EXPECT_GE(task.now() - before, m.profile.costs.migrate_page * moved);
  });
}

TEST(Compaction, WithoutAdviceTheFaultFallsBackAtOnce) {
  Fragmented m([](KernelConfig& c) { c.thp_enabled = ThpEnabled::kAlways; });
  m.run([&](Task& task) {
    m.fragment(task, false);
    const std::uint64_t allocated = m.vmstat().thp_fault_alloc;
    const VirtAddr q = m.map(task, 40 * kMiB);
    EXPECT_EQ(m.touch(task, q, 20 * kMiB), Signal::kNone);
    EXPECT_GT(m.vmstat().thp_fault_fallback, 0U);
    EXPECT_EQ(m.vmstat().compact_stall, 0U);
    EXPECT_EQ(m.vmstat().pgmigrate_success, 0U);
    EXPECT_LE(m.vmstat().thp_fault_alloc, allocated + 8);
  });
}

TEST(Compaction, DeferLeavesItToKcompactd) {
  Fragmented m([](KernelConfig& c) { c.thp_defrag = ThpDefrag::kDefer; });
  m.run([&](Task& task) {
    m.fragment(task);
    const VirtAddr q = m.advised(task, 2);
    EXPECT_EQ(user_access(task, *m.process, q, Access::kWrite), Signal::kNone);
    EXPECT_EQ(m.vmstat().thp_fault_fallback, 1U);
    sys_nanosleep(task, *m.process, Duration::ms(500));
    EXPECT_GT(m.vmstat().compact_daemon_wake, 0U);
    EXPECT_GT(m.vmstat().pgmigrate_success, 0U);
    EXPECT_EQ(user_access(task, *m.process, q + k2M, Access::kWrite), Signal::kNone);
    EXPECT_EQ(m.vmstat().thp_fault_alloc, 1U);
    EXPECT_EQ(m.vmstat().compact_stall, 0U);
  });
}

TEST(Compaction, NeverMeansNever) {
  Fragmented m([](KernelConfig& c) { c.thp_defrag = ThpDefrag::kNever; });
  m.run([&](Task& task) {
    m.fragment(task);
    EXPECT_EQ(user_access(task, *m.process, m.advised(task), Access::kWrite),
              Signal::kNone);
    EXPECT_EQ(m.vmstat().thp_fault_fallback, 1U);
    EXPECT_EQ(m.vmstat().compact_daemon_wake, 0U);
  });
}

TEST(Compaction, AKernelWithoutItFallsBack) {
  Fragmented m([](KernelConfig& c) { c.compaction = false; });
  m.run([&](Task& task) {
    m.fragment(task);
    EXPECT_EQ(user_access(task, *m.process, m.advised(task), Access::kWrite),
              Signal::kNone);
    EXPECT_EQ(m.vmstat().thp_fault_fallback, 1U);
    EXPECT_EQ(m.vmstat().pgmigrate_success, 0U);
  });
}

TEST(Compaction, AfterFailuresItIsDeferred) {
  Fragmented m;
  m.run([&](Task& task) {
    m.fragment(task);
    Process& child = *sys_fork(task, *m.process).value();  // shared pages don't move
    const VirtAddr q = m.advised(task, 6);
    std::uint64_t scanned[6] = {};
    for (int i = 0; i < 6; ++i) {
      const std::uint64_t before = m.vmstat().compact_migrate_scanned;
      EXPECT_EQ(user_access(task, *m.process, q + i * k2M, Access::kWrite), Signal::kNone);
      scanned[i] = m.vmstat().compact_migrate_scanned - before;
    }
    EXPECT_EQ(m.vmstat().thp_fault_alloc, 0U);
    EXPECT_GT(scanned[0], 10'000U);
    EXPECT_GT(m.vmstat().pgmigrate_fail, 0U);
    EXPECT_GT(std::ranges::count(scanned, std::uint64_t{0}), 0);
    sys_exit_group(task, child);
  });
}

TEST(Compaction, TooLittleMemoryIsNotFragmentation) {
  Small m([](KernelConfig& c) { c.thp_enabled = ThpEnabled::kMadvise; });
  m.run([&](Task& task) {
    EXPECT_EQ(m.touch(task, m.map(task, 112 * kMiB), 112 * kMiB), Signal::kNone);
    const AllocRequest request{.order = 9};
    EXPECT_EQ(m.kernel->mm_shared().compaction().try_to_compact(task, request,
                                                                CompactMode::kSyncLight),
              CompactResult::kSkipped);
  });
}

}  // namespace
}  // namespace faultline::kernel
