// SPDX-License-Identifier: Apache-2.0
//
// Faults, drawn: what is mapped after which touch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/check.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

using namespace time_literals;

// Where the toy's mappings of whole huge pages go: 8-page boundaries.
constexpr VirtAddr kAligned{32ULL << 20};

KernelConfig with_thp(ThpEnabled enabled, const std::string& preset = "6.1") {
  KernelConfig config = toy_config(preset);
  config.thp_enabled = enabled;
  return config;
}

TEST(Thp, ATouchInAnAlignedRangeMapsAWholeHugePage) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned + 3 * m.page());
  });
  EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHH........");
  EXPECT_EQ(m.vmstat().thp_fault_alloc, 1U);
  EXPECT_EQ(m.mm().rss_anon, 8U + 0U);
  EXPECT_EQ(m.process().minflt, 1U);
}

TEST(Thp, TheVmaMustCoverTheWholeRange) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 14, kAligned + 2 * m.page());
    m.write(t, kAligned + 2 * m.page());
    m.write(t, kAligned + 8 * m.page());
  });
  EXPECT_EQ(m.draw(kAligned, 16), "..p.....HHHHHHHH");
  EXPECT_EQ(m.vmstat().thp_fault_alloc, 1U);
  EXPECT_EQ(m.vmstat().thp_fault_fallback, 0U) << "not a failed allocation";
}

TEST(Thp, OneBasePageLocksTheRangeOutUntilItsTableGoes) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 4, kAligned);  // too small yet
    m.write(t, kAligned);
    m.mmap(t, 4, kAligned + 4 * m.page());  // merges: now it covers the range
    m.write(t, kAligned + 5 * m.page());
    EXPECT_EQ(m.draw(kAligned, 8), "p....p..");
    sys_madvise(t, m.process(), kAligned, 8 * m.page(), Madvise::kDontneed);
    m.write(t, kAligned);
    EXPECT_EQ(m.draw(kAligned, 8), "p.......") << "the empty table is still there";
    sys_munmap(t, m.process(), kAligned, 8 * m.page());
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
  });
  EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
}

TEST(Thp, ReadMapsTheHugeZeroPageWhichIsNotResident) {
  ToyMachine m;
  const std::uint64_t before = m.mm().rss_anon;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.read(t, kAligned);
    m.read(t, kAligned + 8 * m.page());
  });
  EXPECT_EQ(m.draw(kAligned, 16), "ZZZZZZZZZZZZZZZZ");
  EXPECT_EQ(m.vmstat().thp_zero_page_alloc, 1U);
  EXPECT_EQ(m.vmstat().thp_fault_alloc, 0U);
  EXPECT_EQ(m.mm().rss_anon, before);
}

TEST(Thp, AWriteToTheHugeZeroPageSplitsItOrGetsAHugePageByVersion) {
  for (const auto& row : {std::tuple{"6.1", "zzpzzzzz", 1U},
                          {"4.15", "HHHHHHHH", 0U},
                          {"6.12", "zzpzzzzz", 1U},
                          {"6.18", "HHHHHHHH", 0U}}) {
    const auto preset = std::get<0>(row);
    const auto picture = std::get<1>(row);
    const auto splits = std::get<2>(row);
    ToyMachine m(toy_profile(), with_thp(ThpEnabled::kAlways, preset));
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.read(t, kAligned);
      m.write(t, kAligned + 2 * m.page());
    });
    EXPECT_EQ(m.draw(kAligned, 8), picture) << preset;
    EXPECT_EQ(m.vmstat().thp_split_pmd, splits) << preset;
  }
}

TEST(Thp, NeverAndMadviseMapBasePages) {
  for (const ThpEnabled enabled : {ThpEnabled::kNever, ThpEnabled::kMadvise}) {
    ToyMachine m(toy_profile(), with_thp(enabled));
    m.run([&](Task& t) {
      m.mmap(t, 16, kAligned);
      m.write(t, kAligned);
      m.read(t, kAligned + m.page());
      sys_madvise(t, m.process(), kAligned + 8 * m.page(), 8 * m.page(),
                  Madvise::kHugepage);
      m.write(t, kAligned + 8 * m.page());
    });
    const std::string second = enabled == ThpEnabled::kMadvise ? "HHHHHHHH" : "p.......";
    EXPECT_EQ(m.draw(kAligned, 16), "pz......" + second);
  }
}

TEST(Thp, WithoutABlockTheSameFaultMapsABasePage) {
  arch::Profile profile = toy_profile();
  profile.nodes[0].memory_bytes = profile.nodes[0].free_bytes = 2 << 20;
  ToyMachine m(profile);
  m.run([&](Task& t) {
    m.mmap(t, 500, kAligned);
    EXPECT_EQ(
        user_touch(t, m.process(), kAligned, 500 * m.page(), m.page(), Access::kWrite),
        Signal::kKill)
        << "the machine has 512 pages in all";
  });
  EXPECT_GT(m.vmstat().thp_fault_fallback, 0U);
  EXPECT_GT(m.vmstat().thp_fault_alloc, 0U);
  EXPECT_EQ(m.process().minflt + 1, m.vmstat().pgfault) << "all but the last";
}

TEST(Thp, RacingFaultsEachClearAPageAndOneWins) {
  ToyMachine m;
  m.run([&](Task& t) { m.mmap(t, 8, kAligned); });
  const std::uint64_t free_before = m.kernel.phys().free_pages_total();
  const std::uint64_t tables_before = m.pages().pgtables_bytes();
  const std::uint64_t faults_before = m.vmstat().pgfault;
  std::vector<Duration> took(2);
  for (std::size_t i = 0; i < 2; ++i)
    m.add(
        [&m, &took, i](Task& t) {
          const Time start = t.now();
          m.write(t, kAligned + i * m.page());
          took[i] = t.now() - start;
        },
        m.engine.now().since_start());
  m.run_all();
  EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
  EXPECT_EQ(m.vmstat().thp_fault_alloc, 1U);
  EXPECT_EQ(m.vmstat().pgfault - faults_before, 2U);
  // Each has cleared 32 KiB at 1 GB/s.
  for (const Duration d : took) EXPECT_GE(d, 32'768_ns);
  // The loser's page and table are free again: one huge page, its deposit, one PMD table at
  // most.
  EXPECT_LE(free_before - m.kernel.phys().free_pages_total(), 8U + 2U);
  EXPECT_LE(m.pages().pgtables_bytes() - tables_before, 2 * 4096U);
}

TEST(Fault, OutsideOfAnyMappingOrAgainstItsRightsIsSegv) {
  ToyMachine m;
  m.run([&](Task& t) {
    const VirtAddr at = m.mmap(t, 8, kAligned);
    EXPECT_EQ(m.write(t, at + 8 * m.page()), Signal::kSegv);
    sys_mprotect(t, m.process(), at, 8 * m.page(), kProtRead);
    EXPECT_EQ(m.write(t, at), Signal::kSegv);
    EXPECT_EQ(m.read(t, at), Signal::kNone);
    sys_mprotect(t, m.process(), at, 8 * m.page(), kProtNone);
    EXPECT_EQ(m.read(t, at), Signal::kSegv);
  });
}

TEST(Fault, ZeroPageIsReplacedByTheFirstWrite) {
  ToyMachine m(toy_profile(), with_thp(ThpEnabled::kNever));
  std::uint64_t before = 0;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.read(t, kAligned);
    before = m.mm().rss_anon;
    EXPECT_EQ(m.draw(kAligned, 8), "z.......");
    m.write(t, kAligned);
  });
  EXPECT_EQ(m.draw(kAligned, 8), "p.......");
  EXPECT_EQ(m.mm().rss_anon, before + 1);
  EXPECT_EQ(m.process().minflt, 2U);
}

TEST(Fault, TheChainOfAHugeFaultIsTheKernels) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
  });
  std::vector<std::string> paths;
  for (const auto& node : m.engine.centres().nodes())
    paths.push_back(CentreTree::path(node));
  const std::string chain =
      "asm_exc_page_fault;exc_page_fault;do_user_addr_fault;handle_mm_fault;__handle_mm_"
      "fault;"
      "do_huge_pmd_anonymous_page;__do_huge_pmd_anonymous_page;clear_huge_page;clear_page_"
      "erms";
  bool found = false;
  for (const std::string& path : paths) found |= path.ends_with(chain);
  EXPECT_TRUE(found);
}

TEST(Fault, VmaLockFaultsRunBesideAWriterElsewhere) {
  // 6.12: the fault of one VMA doesn't wait for an mmap that makes another.
  for (const auto& row : {std::pair{"6.1", true}, {"6.12", false}}) {
    const auto preset = std::get<0>(row);
    const auto waits = std::get<1>(row);
    ToyMachine m(toy_profile(), with_thp(ThpEnabled::kAlways, preset));
    m.run([&](Task& t) {
      m.mmap(t, 64, kAligned);
      m.write(t, kAligned);
    });
    const Time start = m.engine.now();
    Duration fault_wait;
    m.add(
        [&](Task& t) {
          m.mm().mmap_write_lock(t);
          t.work(1_ms);
          m.mm().mmap_write_unlock(t);
        },
        start.since_start());
    m.add(
        [&](Task& t) {
          m.write(t, kAligned + 8 * m.page());
          fault_wait = t.usage().state[static_cast<std::size_t>(TaskState::kLockWait)];
        },
        start.since_start() + 10_us);
    m.run_all();
    EXPECT_EQ(fault_wait > 500_us, waits) << preset;
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
