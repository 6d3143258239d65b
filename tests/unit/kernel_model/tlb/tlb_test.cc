// SPDX-License-Identifier: Apache-2.0
//
// Hits and misses, counted by hand, and their time.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/tlb/tlb_machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr VirtAddr kAligned{32ULL << 20};

TEST(Tlb, IsNotThereUnlessTheMachineAsksForIt) {
  ToyMachine m;
  EXPECT_EQ(m.kernel.tlbs(), nullptr);
}

TEST(Tlb, AFirstTouchWalksInVainThenFaultsThenWalksAgain) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    const TlbStats s = m.during([&] { m.write(t, kAligned); });
    EXPECT_EQ(s.vain_walks, 1U);
    EXPECT_EQ(s.walks, 1U);
    EXPECT_EQ(s.l1_misses, 1U);
    EXPECT_EQ(s.l1_read_misses, 0U);
    // There was no table below the top one; then the entries of two tables were unknown.
    EXPECT_EQ(s.time, 100_ns + (100_ns + 30_ns + 30_ns));
    const TlbStats next = m.during([&] { m.write(t, kAligned + m.page()); });
    EXPECT_EQ(next.time, 100_ns + 100_ns) << "the walk cache knows the way";
    const Time before = t.now();
    m.read(t, kAligned);
    EXPECT_EQ(t.now(), before) << "what the first level holds is free";
  });
}

TEST(Tlb, SequentialPassesMissTheFirstLevelAndHitTheSecondIfItHoldsAll) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 40, kAligned);
    m.write_pages(t, kAligned, 16);
    TlbStats s = m.read_pages(t, kAligned, 16);
    EXPECT_EQ(s.l1_misses, 16U) << "four entries of a cycle of 16";
    EXPECT_EQ(s.l1_read_misses, 16U);
    EXPECT_EQ(s.walks, 0U) << "sixteen pages, sixteen entries";
    EXPECT_EQ(s.time, 10_ns * 16);
    m.write_pages(t, kAligned, 40);
    s = m.read_pages(t, kAligned, 40);
    EXPECT_EQ(s.walks, 40U) << "a longer cycle than the second level";
    EXPECT_EQ(s.read_walks, 40U);
  });
}

TEST(Tlb, AStrideOfTheSetsUsesOneSetOfTheSecondLevel) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 64, kAligned);
    m.write_pages(t, kAligned, 64);
    for (const auto& [pages, walks] : {std::pair{4U, 0U}, {5U, 4U}}) {
      const auto pass = [&] {
        for (unsigned i = 0; i < pages; ++i) m.read(t, kAligned + 4 * i * m.page());
      };
      m.kernel.tlbs()->flush_all(m.process());
      pass();
      // Four pages fit the four ways of the set.  Of five, each pushes another out: by age
      // it would always be the next one, by marks one of them escapes.
      EXPECT_EQ(m.during(pass).walks, walks) << pages;
    }
  });
}

TEST(Tlb, FourPagesInTurnStayInTheFirstLevel) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write_pages(t, kAligned, 4);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(m.read_pages(t, kAligned, 4).l1_misses, 0U);
  });
}

TEST(Tlb, AHugePageIsOneEntry) {
  TlbMachine m(tlb_profile(), ThpEnabled::kAlways);
  m.run([&](Task& t) {
    m.mmap(t, 32, kAligned);
    m.write_pages(t, kAligned, 32);
    ASSERT_EQ(m.draw(kAligned, 32), std::string(32, 'H'));
    m.kernel.tlbs()->flush_all(m.process());
    TlbStats s = m.read_pages(t, kAligned, 32);
    EXPECT_EQ(s.walks, 4U);
    // A walk ends one level higher: one table's entry is unknown at first, then known.
    EXPECT_EQ(s.time, 100_ns * 4 + 30_ns);
    EXPECT_EQ(m.read_pages(t, kAligned, 32).l1_misses, 0U);
  });
}

// As on the Cortex-A72, whose first level takes 2 MiB pages as pieces of 1 MiB.
TEST(Tlb, AHugePageEntersTheFirstLevelInPiecesOfASizeThatItHolds) {
  arch::Profile profile = tlb_profile();
  profile.tlb[0].page_sizes = {4096, 16384};
  TlbMachine m(profile, ThpEnabled::kAlways);
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write_pages(t, kAligned, 16);
    m.kernel.tlbs()->flush_all(m.process());
    TlbStats s = m.read_pages(t, kAligned, 16);
    EXPECT_EQ(s.l1_misses, 4U) << "two halves each";
    EXPECT_EQ(s.walks, 2U) << "the second half comes from the second level, which is whole";
    s = m.during([&] {
      user_touch(t, m.process(), kAligned, 16 * m.page(), m.page(), Access::kRead);
    });
    EXPECT_EQ(s.l1_misses, 0U) << "four pieces, four entries";
    m.kernel.tlbs()->flush_all(m.process());
    s = m.during([&] {
      user_touch(t, m.process(), kAligned, 16 * m.page(), m.page(), Access::kRead);
    });
    EXPECT_EQ(s.l1_misses, 4U) << "a touch of the range asks for each piece";
    EXPECT_EQ(s.walks, 2U);
  });
}

TEST(Tlb, ALevelWithoutTheSizeHoldsNothing) {
  arch::Profile profile = tlb_profile();
  profile.tlb[1].page_sizes = {32768};
  TlbMachine m(profile);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write_pages(t, kAligned, 8);
    EXPECT_EQ(m.read_pages(t, kAligned, 8).walks, 8U) << "base pages are in level 1 only";
  });
}

// As Zen does, with four pages.
TEST(Tlb, ContiguousPagesAreOneEntryWhereTheHardwareCoalesces) {
  arch::Profile profile = tlb_profile();
  for (arch::TlbLevel& level : profile.tlb) level.coalesced_pages = 4;
  TlbMachine m(profile);
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write_pages(t, kAligned, 16);
    std::uint64_t aligned = 0;
    for (std::uint64_t i = 0; i < 16; i += 4) {
      const PageView first = m.pages().look(kAligned + i * m.page());
      bool all = first.pfn.v % 4 == 0;
      for (std::uint64_t k = 1; k < 4; ++k)
        all &= m.pages().look(kAligned + (i + k) * m.page()).pfn.v == first.pfn.v + k;
      aligned += all ? 1 : 0;
    }
    ASSERT_GE(aligned, 1U) << "fresh memory is handed out in order";
    m.kernel.tlbs()->flush_all(m.process());
    EXPECT_EQ(m.read_pages(t, kAligned, 16).walks, aligned + 4 * (4 - aligned));

    // A page that only reads may be alike in frame, but not in rights.
    sys_mprotect(t, m.process(), kAligned, m.page(), kProtRead);
    m.kernel.tlbs()->flush_all(m.process());
    const TlbStats s = m.read_pages(t, kAligned, 16);
    EXPECT_GE(s.walks, aligned + 4 * (4 - aligned));
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), 0U)
        << "sixteen pages have passed since";
    m.read(t, kAligned);
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), m.page());
  });
}

TEST(Tlb, AFoldedBlockIsOneEntryWhereTheArrayHasItsSize) {
  arch::Profile profile = tlb_profile();
  profile.isa = arch::Isa::kArm64;
  profile.broadcast_tlbi = true;
  profile.geometry.contpte_pages = 4;
  for (arch::TlbLevel& level : profile.tlb) level.page_sizes = {4096, 16384};
  for (const auto& [preset, walks] : {std::pair{"6.8", 4U}, {"6.12", 1U}}) {
    KernelConfig config = toy_config(preset);
    config.thp_enabled = ThpEnabled::kAlways;
    config.khugepaged_run = false;
    config.mthp_always = {16 << 10};
    config.mthp_inherit = {};
    ToyMachine m(profile, config);
    m.run([&](Task& t) {
      m.mmap(t, 4, kAligned);
      m.write(t, kAligned);
      ASSERT_EQ(m.draw(kAligned, 4), "pppp");
      m.kernel.tlbs()->flush_all(m.process());
      const std::uint64_t before = m.kernel.tlbs()->stats(m.process()).walks;
      for (unsigned i = 0; i < 4; ++i) m.write(t, kAligned + i * m.page());
      EXPECT_EQ(m.kernel.tlbs()->stats(m.process()).walks - before, walks) << preset;
    });
  }
}

TEST(Tlb, UnmappedAndDiscardedPagesAreFlushedAndNoOthers) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write_pages(t, kAligned, 3);
    sys_madvise(t, m.process(), kAligned + m.page(), m.page(), Madvise::kDontneed);
    EXPECT_EQ(m.read_pages(t, kAligned, 1).l1_misses, 0U);
    const TlbStats s = m.read_pages(t, kAligned + m.page(), 1);
    EXPECT_EQ(s.vain_walks, 1U);
    EXPECT_EQ(s.walks, 1U);
    EXPECT_EQ(m.read_pages(t, kAligned + 2 * m.page(), 1).l1_misses, 0U);
    const TlbStats gone =
        m.during([&] { sys_munmap(t, m.process(), kAligned + 2 * m.page(), m.page()); });
    EXPECT_EQ(gone.flushes, 1U);
    EXPECT_EQ(gone.full_flushes, 0U);
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned + 2 * m.page()).bytes(),
              0U);
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), m.page());
  });
}

TEST(Tlb, X86FlushesTheWholeAddressSpaceAbove33Pages) {
  for (const std::uint64_t pages : {33, 34}) {
    TlbMachine m;
    m.run([&](Task& t) {
      m.mmap(t, 64, kAligned);
      m.write_pages(t, kAligned, 64);
      m.read(t, kAligned);
      sys_munmap(t, m.process(), kAligned + 8 * m.page(), pages * m.page());
      EXPECT_EQ(m.read_pages(t, kAligned, 1).walks, pages == 33 ? 0U : 1U);
    });
    EXPECT_EQ(m.stats().full_flushes, pages == 33 ? 0U : 1U);
  }
}

TEST(Tlb, ASplitHugePageIsFlushedWhole) {
  TlbMachine m(tlb_profile(), ThpEnabled::kAlways);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    ASSERT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
    sys_madvise(t, m.process(), kAligned + 7 * m.page(), m.page(), Madvise::kDontneed);
    ASSERT_EQ(m.draw(kAligned, 8), "ppppppp.");
    const TlbStats s = m.read_pages(t, kAligned, 2);
    EXPECT_EQ(s.walks, 2U);
  });
}

TEST(Tlb, AWriteWithoutTheRightFaultsWithoutAWalk) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    sys_mprotect(t, m.process(), kAligned, m.page(), kProtRead);
    m.read(t, kAligned);
    const TlbStats s = m.during([&] { EXPECT_EQ(m.write(t, kAligned), Signal::kSegv); });
    EXPECT_EQ(s.vain_walks + s.walks, 0U);
  });
}

TEST(Tlb, EachCpuHasItsOwnAndAllAreFlushed) {
  TlbMachine m;
  int first_cpu = -1, second_cpu = -1;
  m.add([&](Task& t) {
    first_cpu = t.cpu();
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    t.work(200_us);
    EXPECT_EQ(m.stats().walks, 2U) << "the other one walked for itself";
    sys_madvise(t, m.process(), kAligned, m.page(), Madvise::kDontneed);
  });
  m.add(
      [&](Task& t) {
        second_cpu = t.cpu();
        EXPECT_EQ(m.read_pages(t, kAligned, 1).walks, 1U);
        EXPECT_EQ(m.read_pages(t, kAligned, 1).l1_misses, 0U);
        t.work(300_us);
        t.sync();
        EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), 0U);
      },
      100_us);
  m.run_all();
  EXPECT_NE(first_cpu, second_cpu);
}

TEST(Tlb, EntriesOfTwoProcessesLieSideBySide) {
  TlbMachine m;
  Process& other = m.kernel.create_process("other");
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const auto area = sys_mmap(t, other, kAligned, 8 * m.page(), kProtRead | kProtWrite,
                               kMapPrivate | kMapAnonymous | kMapFixed);
    ASSERT_TRUE(area.ok());
    user_access(t, other, kAligned, Access::kWrite);
    EXPECT_EQ(m.read_pages(t, kAligned, 1).l1_misses, 0U) << "a switch flushes nothing";
    EXPECT_EQ(m.kernel.tlbs()->stats(other).walks, 1U);
    sys_munmap(t, other, kAligned, 8 * m.page());
    EXPECT_EQ(m.read_pages(t, kAligned, 1).l1_misses, 0U) << "nor does the other's munmap";
    sys_execve(t, m.process());
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), 0U);
  });
}

TEST(Tlb, ForkFlushesTheParent) {
  TlbMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    ASSERT_TRUE(sys_fork(t, m.process()).ok());
    EXPECT_EQ(m.kernel.tlbs()->held(t.cpu(), m.process(), kAligned).bytes(), 0U);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
