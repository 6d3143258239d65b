// SPDX-License-Identifier: Apache-2.0
//
// Huge pages beyond the fault: MADV_FREE, splits of the page itself, fork and
// copy-on-write, collapse.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel_model/mm/collapse.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/split_huge_page.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

using namespace time_literals;

constexpr VirtAddr kAligned{32ULL << 20};

std::uint64_t free_pages(ToyMachine& m) {
  return m.kernel.phys().free_pages_total();
}

KernelConfig base_pages(const std::string& preset = "6.1") {
  KernelConfig config = toy_config(preset);
  config.thp_enabled = ThpEnabled::kMadvise;
  return config;
}

// Pages that smaps would call LazyFree.
std::uint64_t lazyfree(ToyMachine& m, std::uint64_t pages) {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < pages; ++i)
    count += m.pages().look(kAligned + i * m.page()).lazyfree;
  return count;
}

TEST(MadvFree, PagesCountWhenTheirBatchOf15IsApplied) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 40, kAligned);
    user_touch(t, m.process(), kAligned, 40 * m.page(), m.page(), Access::kWrite);
    const std::uint64_t rss = m.mm().rss_anon;
    m.pages().madvise_free(t, {kAligned, kAligned + 16 * m.page()});
    EXPECT_EQ(m.vmstat().pglazyfree, 15U);
    EXPECT_EQ(lazyfree(m, 40), 15U);
    EXPECT_EQ(m.mm().rss_anon, rss) << "resident until reclaim takes it";
    // The next call drains what waits.
    m.pages().madvise_free(t, {kAligned + 16 * m.page(), kAligned + 17 * m.page()});
    EXPECT_EQ(m.vmstat().pglazyfree, 16U);
    m.write(t, kAligned);
    EXPECT_EQ(lazyfree(m, 40), 15U) << "written: an ordinary page again";
    EXPECT_EQ(m.draw(kAligned, 8), "pppppppp");
  });
}

TEST(MadvFree, WholeHugePageStaysHugeAndCountsAtOnce) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    m.pages().madvise_free(t, {kAligned, kAligned + m.huge()});
    EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
    EXPECT_EQ(m.vmstat().pglazyfree, 8U);
    EXPECT_EQ(lazyfree(m, 8), 8U);
  });
  EXPECT_EQ(m.vmstat().thp_split_pmd, 0U);
}

TEST(MadvFree, PartOfAHugePageSplitsThePageItself) {
  for (const auto& row : {std::pair{"6.1", 1U}, {"6.18", 0U}}) {
    const auto preset = std::get<0>(row);
    const auto deferred = std::get<1>(row);
    ToyMachine m(toy_profile(), toy_config(preset));
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.write(t, kAligned);
      const std::uint64_t before = free_pages(m);
      m.pages().madvise_free(t, {kAligned + m.page(), kAligned + 3 * m.page()});
      EXPECT_EQ(m.draw(kAligned, 8), "pppppppp");
      EXPECT_EQ(free_pages(m), before);
      EXPECT_EQ(m.kernel.mm_shared().deferred_split.size(), 0U);
      // Single pages now: one that goes is free.
      sys_madvise(t, m.process(), kAligned, m.page(), Madvise::kDontneed);
      EXPECT_EQ(free_pages(m), before + 1);
    });
    EXPECT_EQ(m.vmstat().thp_split_page, 1U) << preset;
    EXPECT_EQ(m.vmstat().thp_split_pmd, 1U) << preset;
    EXPECT_EQ(m.vmstat().thp_deferred_split_page, deferred) << preset;
  }
}

TEST(MadvFree, AWriteFaultsWhereHardwareDoesntKeepTheDirtyBit) {
  for (const bool hardware : {true, false}) {
    arch::Profile profile = toy_profile();
    profile.hardware_access_dirty = hardware;
    ToyMachine m(profile, base_pages());
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.write(t, kAligned);
      m.pages().madvise_free(t, {kAligned, kAligned + m.page()});
      const std::uint64_t before = m.process().minflt;
      m.write(t, kAligned);
      EXPECT_EQ(m.process().minflt - before, hardware ? 0U : 1U);
      EXPECT_EQ(lazyfree(m, 8), 0U);
    });
  }
}

TEST(DeferredSplit, TheShrinkerFreesWhatNobodyMaps) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + m.huge());
    sys_madvise(t, m.process(), kAligned + 2 * m.page(), 3 * m.page(), Madvise::kDontneed);
    const std::uint64_t before = free_pages(m);
    EXPECT_EQ(m.kernel.mm_shared().deferred_split.size(), 1U);
    EXPECT_EQ(deferred_split_scan(t, m.kernel, 10), 3U);
    EXPECT_EQ(free_pages(m), before + 3);
    EXPECT_EQ(m.kernel.mm_shared().deferred_split.size(), 0U);
    EXPECT_EQ(m.draw(kAligned, 16), "pp...pppHHHHHHHH");
  });
  EXPECT_EQ(m.vmstat().thp_split_page, 1U);
}

TEST(Fork, BothSidesReadTheSamePagesAndAWriteCopiesOne) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    user_touch(t, m.process(), kAligned, 8 * m.page(), m.page(), Access::kWrite);
    const auto child = sys_fork(t, m.process());
    ASSERT_TRUE(child.ok());
    PageTables& theirs = child.value()->mm().pages();
    EXPECT_EQ(theirs.look(kAligned).pfn, m.pages().look(kAligned).pfn);
    EXPECT_FALSE(m.pages().accessible(kAligned, Access::kWrite));
    const std::uint64_t before = free_pages(m), rss = m.mm().rss_anon;
    m.write(t, kAligned);
    EXPECT_EQ(free_pages(m), before - 1);
    EXPECT_EQ(m.mm().rss_anon, rss);
    EXPECT_NE(theirs.look(kAligned).pfn, m.pages().look(kAligned).pfn);
    // The child is now the only one: its write keeps the page.
    EXPECT_EQ(user_access(t, *child.value(), kAligned, Access::kWrite), Signal::kNone);
    EXPECT_EQ(free_pages(m), before - 1);
    sys_exit_group(t, *child.value());
    EXPECT_EQ(child.value()->mm().rss_anon, 0U);
    EXPECT_EQ(child.value()->mm().pages().pgtables_bytes(), 0U);
  });
}

TEST(Fork, AWriteToASharedHugePageSplitsOrCopiesItByVersion) {
  for (const auto& row : {std::tuple{"6.1", "pppppppp", 1U}, {"4.15", "HHHHHHHH", 0U}}) {
    const auto preset = std::get<0>(row);
    const auto mine = std::get<1>(row);
    const auto splits = std::get<2>(row);
    ToyMachine m(toy_profile(), toy_config(preset));
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.write(t, kAligned);
      const auto child = sys_fork(t, m.process());
      ASSERT_TRUE(child.ok());
      EXPECT_EQ(m.vmstat().nr_anon_transparent_hugepages, 1) << "one page, mapped twice";
      m.write(t, kAligned);
      EXPECT_EQ(m.draw(kAligned, 8), mine) << preset;
      EXPECT_EQ(child.value()->mm().pages().look(kAligned).kind, PageView::kHuge);
      EXPECT_EQ(m.vmstat().thp_split_pmd, splits) << preset;
      EXPECT_EQ(m.vmstat().thp_deferred_split_page, 0U) << "the child still has it whole";
      sys_exit_group(t, *child.value());
    });
  }
}

TEST(Fork, WithoutAHugePage415CopiesTheWholeRangeInBasePages) {
  ToyMachine m(toy_profile(), toy_config("4.15"));
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const auto child = sys_fork(t, m.process());
    ASSERT_TRUE(child.ok());
    const std::uint64_t rss = m.mm().rss_anon, before = free_pages(m);
    m.mm().thp_disabled = true;
    m.write(t, kAligned);
    EXPECT_EQ(m.draw(kAligned, 8), "pppppppp");
    EXPECT_EQ(child.value()->mm().pages().look(kAligned).kind, PageView::kHuge);
    EXPECT_EQ(m.mm().rss_anon, rss);
    EXPECT_EQ(free_pages(m), before - 8);
  });
  EXPECT_EQ(m.vmstat().thp_split_pmd, 0U);
  EXPECT_EQ(m.vmstat().thp_fault_fallback, 1U);
}

TEST(Fork, TheChildsFirstReadFaultsWhereHardwareDoesntKeepTheAccessedBit) {
  arch::Profile profile = toy_profile();
  profile.hardware_access_dirty = false;
  ToyMachine m(profile, base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const auto child = sys_fork(t, m.process());
    ASSERT_TRUE(child.ok());
    user_access(t, *child.value(), kAligned, Access::kRead);
    EXPECT_EQ(child.value()->minflt, 1U);
    user_access(t, *child.value(), kAligned, Access::kRead);
    EXPECT_EQ(child.value()->minflt, 1U);
  });
}

TEST(CowReuse, AfterTheChildIsGoneThePagesAreTheParentsAgain) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    const auto child = sys_fork(t, m.process());
    ASSERT_TRUE(child.ok());
    sys_exit_group(t, *child.value());
    const Pfn before = m.pages().look(kAligned).pfn;
    m.write(t, kAligned);
    EXPECT_EQ(m.pages().look(kAligned).pfn, before) << "the last reference: reused";
  });
}

TEST(Collapse, BasePagesBecomeAHugePageUnderTheWriteLock) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned + m.page());
    m.write(t, kAligned + 5 * m.page());
    EXPECT_EQ(m.draw(kAligned, 8), ".p...p..");
    const std::uint64_t tables = m.pages().pgtables_bytes(), rss = m.mm().rss_anon;
    m.mm().mmap_read_lock(t);
    EXPECT_EQ(madvise_collapse(t, m.mm(), *m.mm().vma_at(kAligned),
                               {kAligned, kAligned + m.huge()}),
              Errno::kOk);
    m.mm().mmap_read_unlock(t);
    EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHH........");
    EXPECT_EQ(m.mm().rss_anon, rss + 6);
    EXPECT_EQ(m.pages().pgtables_bytes(), tables) << "the table is the deposit now";
  });
  EXPECT_EQ(m.vmstat().thp_collapse_alloc, 1U);
}

TEST(Collapse, EmptyRangesAndReadOnlyPagesAreRefused) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 24, kAligned);
    m.write(t, kAligned + 16 * m.page());
    m.read(t, kAligned + 8 * m.page());
    m.mm().mmap_read_lock(t);
    const auto collapse = [&](std::uint64_t from) {
      return madvise_collapse(
          t, m.mm(), *m.mm().vma_at(kAligned),
          {kAligned + from * m.page(), kAligned + (from + 8) * m.page()});
    };
    EXPECT_EQ(collapse(0), Errno::kEINVAL) << "nothing there";
    EXPECT_EQ(collapse(8), Errno::kEINVAL) << "only the zero page";
    EXPECT_EQ(collapse(16), Errno::kOk);
    EXPECT_EQ(collapse(16), Errno::kOk) << "huge already";
    m.mm().mmap_read_unlock(t);
  });
  EXPECT_EQ(m.draw(kAligned, 24), "........z.......HHHHHHHH");
}

TEST(Collapse, FaultsOfTheProcessWaitForTheCopy) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
  });
  const Duration start = m.engine.now().since_start();
  Duration waited;
  m.add(
      [&](Task& t) {
        m.mm().mmap_read_lock(t);
        static_cast<void>(madvise_collapse(t, m.mm(), *m.mm().vma_at(kAligned),
                                           {kAligned, kAligned + m.huge()}));
        m.mm().mmap_read_unlock(t);
      },
      start);
  m.add(
      [&](Task& t) {
        m.write(t, kAligned + 12 * m.page());
        waited = t.usage().state[static_cast<std::size_t>(TaskState::kLockWait)];
      },
      start + 10_us);
  m.run_all();
  EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHH....p...");
  EXPECT_GT(waited, 5_us);
}

TEST(Mthp, AFaultMapsTheLargestAlignedEmptySizeThatSysfsAllows) {
  KernelConfig config = base_pages("6.12");
  config.mthp_always = {16 << 10};
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    m.mmap(t, 14, kAligned);
    m.write(t, kAligned + 5 * m.page());
    EXPECT_EQ(m.draw(kAligned, 14), "....pppp......");
    m.read(t, kAligned + m.page());
    m.write(t, kAligned + 2 * m.page());
    EXPECT_EQ(m.draw(kAligned, 14), ".zp.pppp......") << "not empty any more: one page";
    m.write(t, kAligned + 13 * m.page());
    EXPECT_EQ(m.draw(kAligned, 14), ".zp.pppp.....p") << "the VMA doesn't hold all four";
    EXPECT_EQ(m.kernel.mm_shared().mthp_stats[2].anon_fault_alloc, 1U);
    const std::uint64_t before = free_pages(m);
    sys_madvise(t, m.process(), kAligned + 4 * m.page(), 2 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(free_pages(m), before) << "half of a folio frees nothing";
    sys_madvise(t, m.process(), kAligned + 6 * m.page(), 2 * m.page(), Madvise::kDontneed);
    EXPECT_EQ(free_pages(m), before + 4);
  });
  EXPECT_EQ(m.vmstat().thp_deferred_split_page, 0U) << "counts PMD-sized ones only";
}

TEST(Mthp, NoneBefore68) {
  KernelConfig config = base_pages("6.1");
  config.mthp_always = {16 << 10};
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
  });
  EXPECT_EQ(m.draw(kAligned, 8), "p.......");
}

TEST(Mlock, LockedPagesArentLazilyFreedThroughAFork) {
  ToyMachine m(toy_profile(), base_pages());
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    user_touch(t, m.process(), kAligned, 8 * m.page(), m.page(), Access::kWrite);
    sys_mlock(t, m.process(), kAligned, 2 * m.page());
    const auto child = sys_fork(t, m.process());
    ASSERT_TRUE(child.ok());
    child.value()->mm().pages().madvise_free(t, {kAligned, kAligned + m.huge()});
    m.kernel.mm_shared().lru.lru_add_drain_all();
    EXPECT_EQ(m.vmstat().pglazyfree, 6U);
    sys_exit_group(t, *child.value());
  });
}

// A huge page in pieces that a child shared until it ended: from 6.15 the kernel sees that
// all of it is the parent's and lets it write where it is; before, each piece is copied.
TEST(Fork, APieceOfAHugePageIsReusedAfterTheChildEnded) {
  for (const auto& [preset, reused] : {std::pair{"6.12", false}, std::pair{"6.18", true}}) {
    KernelConfig config = toy_config(preset);
    config.thp_enabled = ThpEnabled::kAlways;
    ToyMachine m(toy_profile(), config);
    const VirtAddr at{8 << 20};
    Pfn before, after;
    m.run([&](Task& task) {
      m.mmap(task, 8, at);
      m.write(task, at);
      ASSERT_EQ(m.draw(at, 8), "HHHHHHHH");
      Process& child = *sys_fork(task, m.process()).value();
      m.write(task, at);  // splits the parent's mapping and copies the first piece
      ASSERT_EQ(m.draw(at, 8), "pppppppp");
      sys_exit_group(task, child);
      before = m.pages().look(at + 3 * m.page()).pfn;
      m.write(task, at + 3 * m.page());
      after = m.pages().look(at + 3 * m.page()).pfn;
    });
    EXPECT_EQ(before == after, reused) << preset;
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
