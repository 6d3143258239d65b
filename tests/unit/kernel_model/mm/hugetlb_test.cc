// SPDX-License-Identifier: Apache-2.0
//
// Pools, reservations and faults of MAP_HUGETLB.
#include "kernel_model/mm/hugetlb.h"

#include <gtest/gtest.h>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/system_views.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr unsigned kHuge = kAnon | kMapHugetlb;
constexpr std::uint64_t k2M = 2 * kMiB;

struct HugeMachine : Machine {
  explicit HugeMachine(std::uint64_t pages, std::string_view preset = "6.1")
      : Machine("x86-4k", preset) {
    kernel().hugetlb().set_max_huge_pages(pool(), pages);
  }
  HugetlbPool& pool() { return *kernel().hugetlb().default_pool(); }
};

TEST(Hugetlb, ThePoolTakesAndGivesBackMemory) {
  HugeMachine m(4);
  const std::uint64_t free = m.kernel().phys().free_pages_total();
  EXPECT_EQ(m.pool().nr_huge_pages, 4U);
  EXPECT_EQ(m.pool().free, 4U);
  m.kernel().hugetlb().set_max_huge_pages(m.pool(), 1);
  EXPECT_EQ(m.pool().nr_huge_pages, 1U);
  EXPECT_EQ(m.kernel().phys().free_pages_total(), free + 3 * 512);
}

TEST(Hugetlb, MmapReservesAndFaultsTake) {
  HugeMachine m(4);
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(3 * k2M - 1, kRw, kHuge);
    EXPECT_EQ(p.v % k2M, 0U);
    EXPECT_EQ(m.pool().resv, 3U);
    EXPECT_EQ(t.write(p + k2M), Signal::kNone);
    EXPECT_EQ(t.write(p + k2M + 4096), Signal::kNone);
    EXPECT_EQ(m.pool().free, 3U);
    EXPECT_EQ(m.pool().resv, 2U);
    EXPECT_EQ(m.process().minflt, 1U);
    EXPECT_EQ(m.mm().hugetlb_bytes, k2M);
    EXPECT_EQ(smaps_rollup(m.mm()).private_hugetlb, k2M);
    EXPECT_EQ(smaps_rollup(m.mm()).rss, m.mm().rss() * 4096);  // not in RSS
    EXPECT_EQ(t.munmap(p, 3 * k2M), Errno::kOk);
    EXPECT_EQ(m.pool().free, 4U);
    EXPECT_EQ(m.pool().resv, 0U);
    EXPECT_EQ(m.mm().hugetlb_bytes, 0U);
  });
}

TEST(Hugetlb, MmapSaysNoWhenThePoolIsTooSmall) {
  HugeMachine m(2);
  m.run([&](Task& task) {
    Thread t(task, m);
    EXPECT_EQ(t.mmap_at({}, 3 * k2M, kRw, kHuge).error(), Errno::kENOMEM);
    const VirtAddr p = t.mmap(2 * k2M, kProtRead, kHuge);  // reserved though read-only
    EXPECT_EQ(t.mmap_at({}, k2M, kRw, kHuge).error(), Errno::kENOMEM);
    EXPECT_EQ(t.munmap(p, 2 * k2M), Errno::kOk);
    EXPECT_TRUE(t.mmap_at({}, k2M, kRw, kHuge).ok());
  });
}

TEST(Hugetlb, SizesAndAlignmentAreChecked) {
  HugeMachine m(4);
  m.run([&](Task& task) {
    Thread t(task, m);
    EXPECT_EQ(t.mmap_at({}, k2M, kRw, kHuge | 20U << kMapHugeShift).error(),
              Errno::kEINVAL);  // 1 MiB
    EXPECT_EQ(t.mmap_at({}, k2M, kRw, kHuge | 30U << kMapHugeShift).error(),
              Errno::kENOMEM);  // an empty pool
    EXPECT_EQ(t.mmap_at({}, 0, kRw, kHuge).error(), Errno::kEINVAL);
    EXPECT_EQ(t.mmap_at({0x10001000}, k2M, kRw, kHuge | kMapFixed).error(), Errno::kEINVAL);
    const VirtAddr p = t.mmap(2 * k2M, kRw, kHuge);
    EXPECT_EQ(t.munmap(p, k2M + 4096), Errno::kEINVAL);
    EXPECT_EQ(t.mprotect(p, 4096, kProtRead), Errno::kEINVAL);
    EXPECT_EQ(t.munmap(p + k2M, k2M), Errno::kOk);
    EXPECT_EQ(m.pool().resv, 1U);
  });
}

TEST(Hugetlb, WithoutReservationAFaultMayEndInSigbus) {
  HugeMachine m(1);
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(2 * k2M, kRw, kHuge | kMapNoreserve);
    EXPECT_EQ(m.pool().resv, 0U);
    EXPECT_EQ(t.write(p), Signal::kNone);
    EXPECT_EQ(t.write(p + k2M), Signal::kBus);
  });
}

TEST(Hugetlb, SurplusPagesComeFromTheBuddyListsAndGoBack) {
  HugeMachine m(1);
  m.pool().nr_overcommit = 2;
  m.run([&](Task& task) {
    Thread t(task, m);
    EXPECT_EQ(t.mmap_at({}, 4 * k2M, kRw, kHuge).error(), Errno::kENOMEM);
    EXPECT_EQ(m.pool().nr_huge_pages, 1U);  // all or nothing
    const VirtAddr p = t.mmap(3 * k2M, kRw, kHuge);
    EXPECT_EQ(m.pool().surplus, 2U);
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(t.write(p + i * k2M), Signal::kNone);
    EXPECT_EQ(t.munmap(p, 3 * k2M), Errno::kOk);
    EXPECT_EQ(m.pool().surplus, 0U);
    EXPECT_EQ(m.pool().nr_huge_pages, 1U);
    EXPECT_EQ(m.pool().free, 1U);
  });
}

TEST(Hugetlb, DontneedFromVersion518) {
  for (const auto& [preset, answer] :
       {std::pair{"5.14", Errno::kEINVAL}, std::pair{"6.1", Errno::kOk}}) {
    HugeMachine m(2, preset);
    m.run([&, expected = answer](Task& task) {
      Thread t(task, m);
      const VirtAddr p = t.mmap(2 * k2M, kRw, kHuge);
      t.write(p);
      EXPECT_EQ(t.madvise(p, k2M + 4096, Madvise::kDontneed), expected);
      EXPECT_EQ(t.madvise(p + 4096, k2M, Madvise::kDontneed), Errno::kEINVAL);
      EXPECT_EQ(m.pool().free, expected == Errno::kOk ? 2U : 1U);
    });
  }
}

// The mutex lets one thread clear; the other finds the page there.
TEST(Hugetlb, RacingFaultsClearOnce) {
  HugeMachine m(2);
  VirtAddr p;
  m.run([&](Task& task) { p = Thread(task, m).mmap(k2M, kRw, kHuge); });
  const Time start = m.engine().now();
  const auto touch = [&](Task& task) {
    EXPECT_EQ(Thread(task, m).write(p), Signal::kNone);
  };
  m.run(touch, touch, touch);
  EXPECT_EQ(m.pool().free, 1U);
  EXPECT_EQ(m.process().minflt, 3U);
  EXPECT_LT(m.engine().now() - start, clear_time(m.profile().costs, k2M) * 2);
}

TEST(Hugetlb, AfterForkTheOwnerKeepsItsPage) {
  HugeMachine m(1);
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(k2M, kRw, kHuge);
    t.write(p);
    const auto child = sys_fork(task, m.process());
    ASSERT_TRUE(child.ok());
    EXPECT_EQ(smaps_rollup(m.mm()).shared_hugetlb, k2M);
    EXPECT_EQ(user_access(task, *child.value(), p, Access::kWrite),
              Signal::kBus);               // no page for a copy
    EXPECT_EQ(t.write(p), Signal::kNone);  // taken away from the child
    EXPECT_EQ(user_access(task, *child.value(), p, Access::kRead), Signal::kBus);
    sys_exit_group(task, *child.value());
    EXPECT_EQ(m.pool().free, 0U);
  });
}

TEST(Hugetlb, MeminfoShowsThePool) {
  HugeMachine m(4);
  m.run([&](Task& task) {
    Thread t(task, m);
    t.write(t.mmap(2 * k2M, kRw, kHuge));
    EXPECT_NE(meminfo_text(m.kernel())
                  .find("HugePages_Total:       4\n"
                        "HugePages_Free:        3\n"
                        "HugePages_Rsvd:        1\n"
                        "HugePages_Surp:        0\n"
                        "Hugepagesize:       2048 kB\n"
                        "Hugetlb:            8192 kB\n"),
              std::string::npos);
  });
}

TEST(Hugetlb, TheScenarioSetsPoolsBySizeAndNode) {
  Machine m("x86-4k", "6.1", [](KernelConfig& c) {
    c.nr_hugepages = 3;
    c.nr_overcommit_hugepages = 2;
    c.hugetlb_pools = {
        {.size = 1 * kGiB, .pages = 0, .pages_of_node = {}, .overcommit = 1}};
  });
  const HugetlbPool& pool = *m.kernel().hugetlb().default_pool();
  EXPECT_EQ(pool.nr_huge_pages, 3U);
  EXPECT_EQ(pool.nr_overcommit, 2U);
  EXPECT_EQ(m.kernel().hugetlb().hstate_sizelog(30)->nr_overcommit, 1U);

  Machine on_node("x86-4k", "6.1", [](KernelConfig& c) {
    c.hugetlb_pools = {{.size = k2M, .pages_of_node = {5}}};
  });
  const HugetlbPool& per_node = *on_node.kernel().hugetlb().default_pool();
  EXPECT_EQ(per_node.free_of_node[0].size(), 5U);
}

}  // namespace
}  // namespace faultline::kernel
