// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/phys_mem.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/kernel_model/phys/machines.h"

namespace faultline::kernel {
namespace {

using namespace testing;

AllocRequest user_page(int node = 0) {
  return {.order = 0, .preferred_node = node};
}
AllocRequest huge_page(const PhysMem& m, GfpReclaim reclaim = GfpReclaim::kNone) {
  return {.order = m.pageblock_order(), .preferred_node = 0, .reclaim = reclaim};
}

TEST(Watermarks, MinFreeIsTheSquareRootOfLowMemory) {
  PhysMem m(machine_4k(4 * kGiB), never());
  EXPECT_EQ(m.min_free_kbytes(), 8192U);  // sqrt(16 * 4194304)
  const Watermarks w = m.watermarks(0);
  EXPECT_EQ(w.min, 2048U);
  EXPECT_EQ(w.low, 2048U + 1048U);  // 0.1 % of the zone is more than min / 4
  EXPECT_EQ(w.high, 2048U + 2 * 1048U);
}

TEST(Watermarks, HugePagesRaiseMinFreeToElevenPageblocks) {
  PhysMem m(machine_4k(4 * kGiB), KernelConfig{});
  EXPECT_EQ(m.min_free_kbytes(), 11U * 2048);
}

// The real arm64 kernel with 12538688 kB says 624896 (its init memory was not free yet
// then).
TEST(Watermarks, On64KPagesFivePercentOfMemoryAreTheLimit) {
  PhysMem m(machine_64k(12'538'688ULL * 1024), KernelConfig{});
  EXPECT_NEAR(static_cast<double>(m.min_free_kbytes()), 624'896, 64);
}

TEST(Watermarks, UserSettingWins) {
  KernelConfig c;
  c.min_free_kbytes = 40'960;
  EXPECT_EQ(PhysMem(machine_4k(4 * kGiB), c).watermarks(0).min, 10'240U);
}

TEST(Pcp, SizesAreTheKernels) {
  EXPECT_EQ(pcp_sizes(PcpRules::k5_14, 12, 9, 1 << 20, 3096, 4).batch, 63U);
  EXPECT_EQ(pcp_sizes(PcpRules::k5_14, 14, 11, 1 << 18, 3096, 4).batch, 15U);
  EXPECT_EQ(pcp_sizes(PcpRules::k5_14, 16, 13, 1 << 16, 3096, 4).batch, 3U);
  EXPECT_EQ(pcp_sizes(PcpRules::k5_14, 12, 9, 1 << 20, 3096, 4).high, 774U);
  EXPECT_EQ(pcp_sizes(PcpRules::k4_15, 12, 9, 1 << 20, 3096, 4).batch, 31U);
  EXPECT_EQ(pcp_sizes(PcpRules::k4_15, 12, 9, 1 << 20, 3096, 4).high, 186U);
}

TEST(Pcp, RefillTakesABatchAndFreesStayUntilHigh) {
  PhysMem m(machine_4k(1 * kGiB), never());
  const std::uint64_t all = m.nr_free_pages();
  const auto pfn = m.alloc_pages(user_page(), 0);
  ASSERT_TRUE(pfn);
  EXPECT_EQ(m.nr_free_pages(), all - 63);
  EXPECT_EQ(m.free_pages_of(0), all - 1);
  m.free_pages(*pfn, 0, 0);
  EXPECT_EQ(m.nr_free_pages(), all - 63);
  m.drain_all_pages();
  EXPECT_EQ(m.nr_free_pages(), all);
  m.check();
}

TEST(Pcp, FreedHugePagesAreKeptPerCpuFrom514) {
  KernelConfig old = never();
  old.pcp = PcpRules::k4_15;
  for (const KernelConfig& c : {never(), old}) {
    PhysMem m(machine_4k(8 * kGiB), c);
    const std::uint64_t all = m.nr_free_pages();
    const auto pfn = m.alloc_pages(huge_page(m), 0);
    ASSERT_TRUE(pfn);
    EXPECT_EQ(m.nr_free_pages(), all - (c.pcp == PcpRules::k4_15 ? 512 : 1024));
  }
}

TEST(PhysMem, HeadOfABlockSaysItsOrderAndNode) {
  PhysMem m(numa_4k(256 * kMiB, {{10, 20}, {20, 10}}), never());
  const auto pfn = m.alloc_pages({.order = 3, .preferred_node = 1}, 1);
  ASSERT_TRUE(pfn);
  EXPECT_EQ(m.node_of(*pfn), 1);
  EXPECT_EQ(m.page(*pfn).node, 1);
  EXPECT_EQ(m.page(*pfn).order, 3);
  EXPECT_EQ(m.page(*pfn).refcount, 1);
}

TEST(PhysMem, RefusesBelowTheMinimumWatermark) {
  PhysMem m(machine_4k(64 * kMiB), never());
  std::uint64_t got = 0;
  while (m.alloc_pages(user_page(), 0)) ++got;
  EXPECT_GT(got, std::uint64_t{0});
  EXPECT_LE(m.nr_free_pages(), m.watermarks(0).min);
  EXPECT_GE(m.nr_free_pages() + 63, m.watermarks(0).min);
  EXPECT_EQ(m.total_pages() - got, m.free_pages_total());
}

// 64 KiB pages: of 4 GiB a quarter GiB is reserved, so the last 512 MiB block is not handed
// out.
TEST(PhysMem, AHugePageMustLeaveTheReserve) {
  PhysMem m(machine_64k(4 * kGiB, 1), KernelConfig{});
  unsigned got = 0;
  while (m.alloc_pages(huge_page(m), 0)) ++got;
  EXPECT_EQ(got, 7U);
  EXPECT_TRUE(m.alloc_pages(user_page(), 0));
}

TEST(PhysMem, NoHugePageFromMemoryInSmallPieces) {
  arch::Profile p = machine_64k(4 * kGiB, 1);
  p.nodes[0].free_bytes = 511 * kMiB;
  PhysMem m(p, never());
  EXPECT_FALSE(m.alloc_pages(huge_page(m, GfpReclaim::kDirect), 0));
  EXPECT_TRUE(m.alloc_pages(user_page(), 0));
}

TEST(PhysMem, FullNodeFallsBackToTheNearest) {
  PhysMem m(numa_4k(64 * kMiB, {{10, 40, 20}, {40, 10, 30}, {20, 30, 10}}), never());
  std::vector<int> order;
  while (const auto pfn = m.alloc_pages(user_page(0), 0)) {
    const int node = m.node_of(*pfn);
    if (order.empty() || order.back() != node) order.push_back(node);
  }
  // All nodes down to their low watermarks first, then again to their minimum.
  EXPECT_EQ(order, (std::vector<int>{0, 2, 1, 0, 2, 1}));
}

TEST(PhysMem, ThisNodeOnlyDoesNotFallBack) {
  PhysMem m(numa_4k(64 * kMiB, {{10, 20}, {20, 10}}), never());
  AllocRequest local = user_page(1);
  local.this_node_only = true;
  while (const auto pfn = m.alloc_pages(local, 1)) ASSERT_EQ(m.node_of(*pfn), 1);
  EXPECT_EQ(m.free_pages_of(0), m.total_pages_of(0));
  EXPECT_TRUE(m.alloc_pages(user_page(1), 1));
}

// Pages on another CPU's list are found by who may reclaim, not by a fault that may not.
TEST(PhysMem, DirectReclaimDrainsOtherCpusLists) {
  arch::Profile p = machine_64k(4 * kGiB, 2);
  p.nodes[0].free_bytes =
      7 * 512 * kMiB - 64 * 1024;  // six whole blocks, taken two at a time
  PhysMem m(p, never());
  std::vector<Pfn> held;
  while (const auto pfn = m.alloc_pages(huge_page(m), 0)) held.push_back(*pfn);
  ASSERT_EQ(held.size(), 5U);
  EXPECT_FALSE(m.alloc_pages(huge_page(m, GfpReclaim::kNone), 1));
  EXPECT_TRUE(m.alloc_pages(huge_page(m, GfpReclaim::kDirect), 1));
}

TEST(PhysMem, ALargeMachineCostsLittle) {
  PhysMem m(machine_4k(256 * kGiB, 64), KernelConfig{});
  EXPECT_EQ(m.total_pages(), 256 * kGiB / 4096);
  EXPECT_EQ(m.free_blocks(0, 10), 256 * kGiB / (4 * kMiB));
  ASSERT_TRUE(m.alloc_pages(user_page(), 5));
  EXPECT_EQ(m.free_blocks(0, 10), 256 * kGiB / (4 * kMiB) - 1);
}

TEST(PhysMem, FreedTwiceIsOurBug) {
  PhysMem m(machine_4k(64 * kMiB), never());
  const auto pfn = m.alloc_pages(user_page(), 0);
  m.free_pages(*pfn, 0, 0);
  EXPECT_DEATH(m.free_pages(*pfn, 0, 0), "kPcp");
}

TEST(PhysMem, RandomUseKeepsEveryPage) {
  PhysMem m(numa_4k(64 * kMiB, {{10, 20}, {20, 10}}), KernelConfig{});
  const std::uint64_t all = m.total_pages();
  struct Held {
    Pfn pfn;
    unsigned order;
  };
  std::vector<Held> held;
  std::uint64_t used = 0;
  std::mt19937 random(11);
  for (int step = 0; step < 50'000; ++step) {
    const int cpu = static_cast<int>(random() % 2);
    if (random() % 2 == 0) {
      const unsigned orders[] = {0, 0, 0, 1, 3, 9, 10};
      AllocRequest r = user_page(static_cast<int>(random() % 2));
      r.order = orders[random() % 7];
      r.type = random() % 4 == 0 ? MigrateType::kUnmovable : MigrateType::kMovable;
      r.reclaim = random() % 2 == 0 ? GfpReclaim::kNone : GfpReclaim::kDirect;
      if (const auto pfn = m.alloc_pages(r, cpu)) {
        held.push_back({*pfn, r.order});
        used += std::uint64_t{1} << r.order;
      }
    } else if (!held.empty()) {
      const std::size_t i = random() % held.size();
      m.free_pages(held[i].pfn, held[i].order, cpu);
      used -= std::uint64_t{1} << held[i].order;
      held[i] = held.back();
      held.pop_back();
    }
    ASSERT_EQ(m.free_pages_total() + used, all);
  }
  m.check();
  for (const Held& h : held) m.free_pages(h.pfn, h.order, 0);
  m.drain_all_pages();
  EXPECT_EQ(m.nr_free_pages(), all);
  EXPECT_EQ(m.free_blocks(0, 10) + m.free_blocks(1, 10), all >> 10);
}

}  // namespace
}  // namespace faultline::kernel
