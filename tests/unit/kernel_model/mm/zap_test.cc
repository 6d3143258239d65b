// SPDX-License-Identifier: Apache-2.0
//
// Unmapping, splitting, protecting and moving pages, and what the counters say of it.
#include <gtest/gtest.h>

#include <string>

#include "arch_profiles/profile_loader.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr VirtAddr kAligned{32ULL << 20};

std::uint64_t free_pages(ToyMachine& m) {
  return m.kernel.phys().free_pages_total();
}

TEST(Dontneed, WholeHugePageIsFreedAndComesBackHuge) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + 8 * m.page());
    const std::uint64_t before = free_pages(m);
    sys_madvise(t, m.process(), kAligned, 8 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(m.draw(kAligned, 16), "........HHHHHHHH");
    EXPECT_EQ(free_pages(m), before + 8 + 1) << "the page and its deposited table";
    m.write(t, kAligned);
    EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHHHHHHHHHH");
  });
  EXPECT_EQ(m.vmstat().thp_split_pmd, 0U);
}

TEST(Dontneed, PartOfAHugePageSplitsOnlyTheMappingAndFreesNothing) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const std::uint64_t before = free_pages(m), rss = m.mm().rss_anon;
    sys_madvise(t, m.process(), kAligned + 2 * m.page(), 3 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(m.draw(kAligned, 8), "pp...ppp");
    EXPECT_EQ(m.mm().rss_anon, rss - 3);
    EXPECT_EQ(free_pages(m), before);
    EXPECT_EQ(m.vmstat().thp_split_pmd, 1U);
    EXPECT_EQ(m.vmstat().thp_deferred_split_page, 1U);
    EXPECT_EQ(m.vmstat().nr_anon_transparent_hugepages, 0);
    // The last piece takes the whole page along.
    sys_madvise(t, m.process(), kAligned, 8 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(free_pages(m), before + 8);
  });
  EXPECT_EQ(m.draw(kAligned, 8), "........");
}

TEST(Munmap, OfASplitHugePageAtOnceCountsAsDeferredSplitOnlyTo68) {
  for (const auto& row : {std::pair{"6.1", 1U}, {"4.15", 1U}, {"6.12", 0U}}) {
    const auto preset = std::get<0>(row);
    const auto deferred = std::get<1>(row);
    ToyMachine m(toy_profile(), toy_config(preset));
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.write(t, kAligned);
      m.pages().split_huge_pmd(t, kAligned);
      EXPECT_EQ(m.draw(kAligned, 8), "pppppppp");
      sys_munmap(t, m.process(), kAligned, 8 * m.page());
    });
    EXPECT_EQ(m.vmstat().thp_split_pmd, 1U) << preset;
    EXPECT_EQ(m.vmstat().thp_deferred_split_page, deferred) << preset;
  }
}

TEST(Munmap, GivesBackEveryPageAndTable) {
  ToyMachine m;
  const std::uint64_t before = free_pages(m);
  const std::uint64_t tables = m.pages().pgtables_bytes();
  m.run([&](Task& t) {
    m.mmap(t, 40, kAligned - 3 * m.page());
    user_touch(t, m.process(), kAligned - 3 * m.page(), 40 * m.page(), m.page(),
               Access::kWrite);
    EXPECT_EQ(m.draw(kAligned - 3 * m.page(), 12), "pppHHHHHHHHH");
    sys_munmap(t, m.process(), kAligned - 3 * m.page(), 40 * m.page());
  });
  EXPECT_EQ(free_pages(m), before);
  EXPECT_EQ(m.pages().pgtables_bytes(), tables);
  EXPECT_EQ(m.vmstat().nr_anon_transparent_hugepages, 0);
}

TEST(FreePgtables, ATableThatANeighbourCanUseStays) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 4, kAligned);
    m.write(t, kAligned);
    const std::uint64_t one_table = m.pages().pgtables_bytes();
    m.mmap(t, 1, kAligned + 4 * m.page());
    m.write(t, kAligned + 4 * m.page());
    EXPECT_EQ(m.pages().pgtables_bytes(), one_table);
    sys_munmap(t, m.process(), kAligned, 4 * m.page());
    EXPECT_EQ(m.pages().pgtables_bytes(), one_table) << "the page above still uses it";
    sys_munmap(t, m.process(), kAligned + 4 * m.page(), m.page());
    EXPECT_LT(m.pages().pgtables_bytes(), one_table);
  });
}

TEST(Mprotect, WholeHugePageStaysHugeAndAPartSplits) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + 8 * m.page());
    sys_mprotect(t, m.process(), kAligned, 8 * m.page(), kProtRead);
    EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHHHHHHHHHH");
    EXPECT_FALSE(m.pages().accessible(kAligned, Access::kWrite));
    EXPECT_TRUE(m.pages().accessible(kAligned, Access::kRead));
    sys_mprotect(t, m.process(), kAligned + 8 * m.page(), 4 * m.page(), kProtNone);
    EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHHpppppppp");
    EXPECT_FALSE(m.pages().accessible(kAligned + 8 * m.page(), Access::kRead));
    EXPECT_TRUE(m.pages().accessible(kAligned + 12 * m.page(), Access::kWrite));
  });
}

TEST(Mprotect, PagesBecomeWritableAgainByFaultOrAtOnceByVersion) {
  for (const auto& row : {std::pair{"5.14", 1U}, {"6.1", 0U}}) {
    const auto preset = std::get<0>(row);
    const auto faults = std::get<1>(row);
    KernelConfig config = toy_config(preset);
    config.thp_enabled = ThpEnabled::kNever;
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.write(t, kAligned);
      sys_mprotect(t, m.process(), kAligned, 8 * m.page(), kProtRead);
      sys_mprotect(t, m.process(), kAligned, 8 * m.page(), kProtRead | kProtWrite);
      const std::uint64_t before = m.process().minflt, rss = m.mm().rss_anon;
      m.write(t, kAligned);
      EXPECT_EQ(m.process().minflt - before, faults) << preset;
      EXPECT_EQ(m.mm().rss_anon, rss) << "reused, not copied";
    });
  }
}

TEST(Mremap, AlignedHugePagesMoveWholeAndOthersInPieces) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + 8 * m.page());
    const VirtAddr far = kAligned + 256 * m.page();
    const auto flags = kMremapMaymove | kMremapFixed;
    ASSERT_TRUE(
        sys_mremap(t, m.process(), kAligned, 8 * m.page(), 8 * m.page(), flags, far).ok());
    EXPECT_EQ(m.draw(far, 8), "HHHHHHHH");
    EXPECT_EQ(m.draw(kAligned, 16), "........HHHHHHHH");
    const VirtAddr odd = kAligned + 513 * m.page();
    ASSERT_TRUE(sys_mremap(t, m.process(), kAligned + 8 * m.page(), 8 * m.page(),
                           8 * m.page(), flags, odd)
                    .ok());
    EXPECT_EQ(m.draw(odd, 8), "pppppppp");
  });
  EXPECT_EQ(m.vmstat().thp_split_pmd, 1U);
}

TEST(Zap, AHugeEmptyRangeCostsTheHostNothing) {
  arch::Profile profile = arch::load_profile("x86-4k");
  ToyMachine m(profile, toy_config("6.1"));
  m.run([&](Task& t) {
    const std::uint64_t bytes = std::uint64_t{128} << 30;
    const auto at = sys_mmap(t, m.process(), {}, bytes, kProtRead | kProtWrite,
                             kMapPrivate | kMapAnonymous | kMapNoreserve);
    ASSERT_TRUE(at.ok());
    for (int i = 0; i < 20'000; ++i)
      EXPECT_EQ(sys_madvise(t, m.process(), at.value(), bytes, Madvise::kDontneed),
                Errno::kOk);
  });
}

// Table sizes that a huge page deposits, by machine (kernel: mm_inc_nr_ptes of the
// deposit).
TEST(VmPte, AHugePageAddsOneTable) {
  for (const auto& row :
       {std::pair{"arm64-64k", 64U}, {"x86-4k", 4U}, {"power-hash-64k", 2U}}) {
    const auto name = std::get<0>(row);
    const auto kib = std::get<1>(row);
    ToyMachine m(arch::load_profile(name), toy_config("6.1"));
    m.run([&](Task& t) {
      const std::uint64_t huge = m.huge();
      const auto at = sys_mmap(t, m.process(), {}, 4 * huge, kProtRead | kProtWrite,
                               kMapPrivate | kMapAnonymous);
      ASSERT_TRUE(at.ok());
      const VirtAddr first{(at.value().v + huge - 1) / huge * huge};
      m.write(t, first);
      const std::uint64_t before = m.pages().pgtables_bytes();
      m.write(t, first + huge);
      EXPECT_EQ(m.pages().pgtables_bytes() - before, kib * 1024U) << name;
    });
    EXPECT_EQ(m.vmstat().thp_fault_alloc, 2U) << name;
  }
}

TEST(PmdLock, IsOfTheTablePageOrOfTheMmByMachineAndVersion) {
  const auto split = [](const char* profile, const char* preset) {
    ToyMachine m(arch::load_profile(profile), toy_config(preset));
    return m.pages().split_pmd_ptlock();
  };
  EXPECT_TRUE(split("x86-4k", "4.15"));
  EXPECT_FALSE(split("arm64-64k", "4.15"));
  EXPECT_TRUE(split("arm64-64k", "6.1"));
  EXPECT_FALSE(split("arm64-64k-42bit", "6.1"));
  EXPECT_FALSE(split("power-hash-64k", "4.15"));
  EXPECT_TRUE(split("power-hash-64k", "6.1"));
  EXPECT_FALSE(split("sparc64", "6.18"));
}

// 1.5 GiB on arm64 with 64K pages where the kernel puts it; one byte every 16 MiB.
TEST(Probe, TouchEvery16MiBOnArm64With64KPages) {
  for (const ThpEnabled enabled : {ThpEnabled::kAlways, ThpEnabled::kNever}) {
    KernelConfig config = toy_config("6.1");
    config.min_free_kbytes = 0;
    config.thp_enabled = enabled;
    ToyMachine m(arch::load_profile("arm64-64k"), config);
    const std::uint64_t before = m.mm().rss_anon;
    const RssStat& rss = m.pages().rss_stat();
    const std::uint64_t shown_before = rss.shown(RssKind::kAnon);
    std::uint64_t shown = 0;
    m.run([&](Task& t) {
      const std::uint64_t bytes = 1536ULL << 20;
      const auto at = sys_mmap(t, m.process(), {}, bytes, kProtRead | kProtWrite,
                               kMapPrivate | kMapAnonymous);
      ASSERT_TRUE(at.ok());
      user_touch(t, m.process(), at.value(), bytes, 16 << 20, Access::kWrite);
      shown = rss.shown(RssKind::kAnon);
    });
    if (enabled == ThpEnabled::kAlways) {
      EXPECT_EQ(m.process().minflt, 34U);
      EXPECT_EQ(m.vmstat().thp_fault_alloc, 2U);
      EXPECT_EQ(m.mm().rss_anon - before, 2U * 8192 + 32);
      // The 32 base pages are still in the task's cache: 64 faults have not passed.  VmRSS
      // of the real kernel was 64 kB before and 1,048,640 kB after.
      EXPECT_EQ((shown - shown_before) * 64, 1'048'640U - 64);
    } else {
      EXPECT_EQ(m.process().minflt, 96U);
      EXPECT_EQ(m.mm().rss_anon - before, 96U);
    }
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
