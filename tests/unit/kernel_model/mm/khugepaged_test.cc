// SPDX-License-Identifier: Apache-2.0
//
// khugepaged: when it looks, where, for how long, and what it collapses.
#include <gtest/gtest.h>

#include <string>

#include "kernel_model/mm/khugepaged.h"
#include "kernel_model/mm/mm_shared.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

using namespace time_literals;

constexpr VirtAddr kAligned{32ULL << 20};

// Huge pages come from khugepaged alone: base pages are faulted in, then the advice is
// given.
KernelConfig config_of(const std::string& preset = "6.1") {
  KernelConfig config = toy_config(preset);
  config.thp_enabled = ThpEnabled::kMadvise;
  config.khugepaged_scan_sleep = 100;
  return config;
}

// `ranges` huge ranges with one page each.
void touch_one_page_each(ToyMachine& m, Task& t, std::uint64_t ranges,
                         VirtAddr at = kAligned) {
  m.mmap(t, ranges * 8, at);
  for (std::uint64_t i = 0; i < ranges; ++i) m.write(t, at + i * m.huge() + m.page());
}

void advise(ToyMachine& m, Task& t, std::uint64_t ranges, VirtAddr at = kAligned) {
  EXPECT_EQ(sys_madvise(t, m.process(), at, ranges * m.huge(), Madvise::kHugepage),
            Errno::kOk);
}

std::uint64_t collapsed(ToyMachine& m) {
  return m.kernel.mm_shared().khugepaged.pages_collapsed();
}

TEST(Khugepaged, DefaultsFollowTheSizeOfAHugePage) {
  ToyMachine m;  // 8 pages
  const KhugepagedKnobs knobs = khugepaged_knobs(m.kernel);
  EXPECT_EQ(knobs.pages_to_scan, 64U);
  EXPECT_EQ(knobs.max_ptes_none, 7U);
  EXPECT_EQ(knobs.max_ptes_swap, 1U);
  EXPECT_EQ(knobs.max_ptes_shared, 4U);
  EXPECT_EQ(knobs.scan_sleep_millisecs, 10'000U);
  EXPECT_EQ(knobs.alloc_sleep_millisecs, 60'000U);
}

TEST(Khugepaged, LooksAtEightRangesEachTimeItWakes) {
  ToyMachine m(toy_profile(), config_of());
  m.run([&](Task& t) {
    touch_one_page_each(m, t, 20);
    advise(m, t, 20);
    t.sleep(90_ms);
    EXPECT_EQ(collapsed(m), 0U) << "still asleep";
    t.sleep(20_ms);
    EXPECT_EQ(collapsed(m), 8U);
    t.sleep(100_ms);
    EXPECT_EQ(collapsed(m), 16U);
    t.sleep(100_ms);
    EXPECT_EQ(collapsed(m), 20U);
    EXPECT_EQ(m.draw(kAligned, 16), "HHHHHHHHHHHHHHHH");
    EXPECT_EQ(m.mm().rss_anon, 160U + 0U) << "the empty entries are filled";
  });
  EXPECT_EQ(m.vmstat().thp_collapse_alloc, 20U);
}

TEST(Khugepaged, EmptyAndHugeRangesCostTheBudgetAsMuch) {
  ToyMachine m(toy_profile(), config_of());
  m.run([&](Task& t) {
    m.mmap(t, 20 * 8, kAligned);
    m.write(t, kAligned + 9 * m.huge());
    advise(m, t, 20);
    m.write(t, kAligned);  // huge at once
    t.sleep(110_ms);
    EXPECT_EQ(collapsed(m), 0U) << "eight ranges: a huge one, seven empty";
    t.sleep(100_ms);
    EXPECT_EQ(collapsed(m), 1U);
  });
}

TEST(Khugepaged, LeavesAContendedMmAlone) {
  ToyMachine m(toy_profile(), config_of());
  m.add([&](Task& t) {
    touch_one_page_each(m, t, 1);
    advise(m, t, 1);
    m.mm().mmap_write_lock(t);
    t.sleep(150_ms);  // over its wake-up at 100 ms
    EXPECT_EQ(t.engine().locks().of("mmap_lock").read.contended, 0U) << "it didn't wait";
    m.mm().mmap_write_unlock(t);
    EXPECT_EQ(collapsed(m), 0U);
    t.sleep(40_ms);
    EXPECT_EQ(collapsed(m), 0U) << "asleep again";
    t.sleep(20_ms);
    EXPECT_EQ(collapsed(m), 1U);
  });
  m.run_all();
}

TEST(Khugepaged, TakesTheNextMmWhenOneIsContended) {
  ToyMachine m(toy_profile(), config_of());
  m.run([&](Task& t) {
    touch_one_page_each(m, t, 1);
    advise(m, t, 1);
    Process& child = *sys_fork(t, m.process()).value();
    user_access(t, child, kAligned + m.page(), Access::kWrite);
    m.mm().mmap_write_lock(t);
    t.sleep(110_ms);
    m.mm().mmap_write_unlock(t);
    EXPECT_EQ(child.mm().pages().look(kAligned).kind, PageView::kHuge)
        << "fork put it on the list";
    EXPECT_EQ(m.draw(kAligned, 8), ".p......");
    sys_exit_group(t, child);
  });
}

TEST(Khugepaged, RespectsMaxPtesNone) {
  for (const std::uint64_t limit : {0U, 4U, 5U}) {
    KernelConfig config = config_of("6.1");
    config.khugepaged_max_ptes_none = limit;
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      user_touch(t, m.process(), kAligned, 3 * m.page(), m.page(), Access::kWrite);
      advise(m, t, 1);
      t.sleep(110_ms);
    });
    EXPECT_EQ(m.draw(kAligned, 8), limit == 5 ? "HHHHHHHH" : "ppp.....") << limit;
    EXPECT_EQ(m.vmstat().thp_scan_exceed_none_pte, limit == 5 ? 0U : 1U) << limit;
  }
}

// Eight written pages, of which the first few have gone to swap.  Their reading ends the
// first attempt; the second one finds them in the swap cache.
TEST(Khugepaged, SwappedPagesComeBackUpToMaxPtesSwap) {
  struct Row {
    const char* preset;
    std::uint64_t swapped;
    const char *first, *second;
  };
  for (const Row& row :
       {Row{"6.1", 1, "sppppppp", "HHHHHHHH"}, Row{"5.14", 1, "sppppppp", "HHHHHHHH"},
        Row{"6.1", 2, "sspppppp", "sspppppp"}}) {
    KernelConfig config = config_of(row.preset);
    config.swap_size = 64 * 4096;
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      user_touch(t, m.process(), kAligned, m.huge(), m.page(), Access::kWrite);
      EXPECT_EQ(
          sys_madvise(t, m.process(), kAligned, row.swapped * m.page(), Madvise::kPageout),
          Errno::kOk);
      advise(m, t, 1);
      t.sleep(150_ms);
      EXPECT_EQ(m.draw(kAligned, 8), row.first) << row.preset;
      t.sleep(100_ms);
      EXPECT_EQ(m.draw(kAligned, 8), row.second) << row.preset;
    });
    const bool over = row.swapped > 1;
    EXPECT_EQ(m.vmstat().pswpout, row.swapped);
    EXPECT_EQ(m.vmstat().pswpin, over ? 0U : 1U);
    EXPECT_EQ(m.mm().rss_anon, over ? 6U : 8U);
    EXPECT_EQ(m.vmstat().thp_scan_exceed_swap_pte > 0, over && row.preset[0] == '6');
  }
}

// MADV_COLLAPSE knows no limit: all but four are read back, one an attempt.
TEST(Collapse, ReadsSwappedPagesBack) {
  KernelConfig config = config_of("6.1");
  config.swap_size = 64 * 4096;
  config.page_cluster = 0;
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    user_touch(t, m.process(), kAligned, m.huge(), m.page(), Access::kWrite);
    EXPECT_EQ(sys_madvise(t, m.process(), kAligned, 3 * m.page(), Madvise::kPageout),
              Errno::kOk);
    EXPECT_EQ(m.draw(kAligned, 8), "sssppppp");
    for (int attempt = 0; attempt < 3; ++attempt)
      EXPECT_EQ(sys_madvise(t, m.process(), kAligned, m.huge(), Madvise::kCollapse),
                Errno::kEAGAIN);
    EXPECT_EQ(sys_madvise(t, m.process(), kAligned, m.huge(), Madvise::kCollapse),
              Errno::kOk);
    EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
  });
  EXPECT_EQ(m.vmstat().pswpin, 3U);
}

// A range whose pages are shared with a child, but for one.
TEST(Khugepaged, RespectsMaxPtesShared) {
  struct Row {
    const char* preset;
    std::optional<std::uint64_t> limit;
    const char* expected;
  };
  for (const Row& row : {Row{"6.1", std::nullopt, "pppp...."},  // NR/2 = 4 < 5 shared
                         Row{"6.1", 5, "HHHHHHHH"}, Row{"4.15", 5, "pppp...."}}) {
    KernelConfig config = config_of(row.preset);
    config.khugepaged_max_ptes_shared = row.limit;
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      user_touch(t, m.process(), kAligned, 6 * m.page(), m.page(), Access::kWrite);
      advise(m, t, 1);
      Process& child = *sys_fork(t, m.process()).value();
      m.write(t, kAligned);
      child.mm().thp_disabled = true;
      t.sleep(110_ms);
      EXPECT_EQ(m.draw(kAligned, 4), std::string(row.expected).substr(0, 4)) << row.preset;
      sys_exit_group(t, child);
    });
  }
}

TEST(Khugepaged, PiecesOfASplitHugePageAreCollapsedFrom58On) {
  for (const auto& [preset, count] : {std::pair{"4.15", 0U}, {"5.14", 1U}}) {
    ToyMachine m(toy_profile(), config_of(preset));
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      advise(m, t, 1);
      m.write(t, kAligned);
      sys_madvise(t, m.process(), kAligned, m.page(), Madvise::kDontneed);
      EXPECT_EQ(m.draw(kAligned, 8), ".ppppppp");
      t.sleep(110_ms);
    });
    EXPECT_EQ(collapsed(m), count) << preset;
    EXPECT_EQ(m.kernel.mm_shared().deferred_split.size(), 1U - count) << preset;
  }
}

TEST(Khugepaged, ReadOnlyRangesAreCollapsedIn618) {
  for (const auto& [preset, count] : {std::pair{"6.12", 0U}, {"6.18", 1U}}) {
    ToyMachine m(toy_profile(), config_of(preset));
    m.run([&](Task& t) {
      touch_one_page_each(m, t, 1);
      sys_mprotect(t, m.process(), kAligned, m.huge(), kProtRead);
      advise(m, t, 1);
      t.sleep(110_ms);
    });
    EXPECT_EQ(collapsed(m), count) << preset;
  }
}

TEST(Khugepaged, SleepsLongerWhenThereIsNoHugePage) {
  KernelConfig config = config_of();
  config.khugepaged_alloc_sleep = 1'000;
  // A huge page of order 3, as here, is no costly one: to reclaim for it could kill the
  // process.
  config.khugepaged_defrag = false;
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    touch_one_page_each(m, t, 2);
    // Everything else that is free in blocks large enough.
    std::vector<Pfn> taken;
    AllocRequest request{.order = 3, .reclaim = GfpReclaim::kNone};
    while (const auto page = m.kernel.phys().alloc_pages(request, 0))
      taken.push_back(*page);
    advise(m, t, 2);
    t.sleep(110_ms);
    EXPECT_EQ(m.vmstat().thp_collapse_alloc_failed, 1U);
    t.sleep(900_ms);
    EXPECT_EQ(m.vmstat().thp_collapse_alloc_failed, 1U) << "alloc_sleep_millisecs";
    t.sleep(100_ms);
    EXPECT_EQ(m.vmstat().thp_collapse_alloc_failed, 2U) << "the second ends the scan";
    for (const Pfn page : taken) m.kernel.phys().free_pages(page, 3, 0);
    t.sleep(200_ms);
    EXPECT_EQ(collapsed(m), 2U);
  });
}

TEST(Khugepaged, AWriteToAKnobWakesIt) {
  KernelConfig config = config_of();
  config.khugepaged_scan_sleep = 4'000'000'000;
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    touch_one_page_each(m, t, 1);
    advise(m, t, 1);
    t.sleep(1000_ms);
    EXPECT_EQ(collapsed(m), 0U);
    Khugepaged& khugepaged = m.kernel.mm_shared().khugepaged;
    KhugepagedKnobs knobs = khugepaged.knobs();
    knobs.scan_sleep_millisecs = 100;
    khugepaged.store(t, knobs);
    t.sleep(1_ms);
    EXPECT_EQ(collapsed(m), 1U);
  });
}

TEST(Khugepaged, EntersAnMmWhoseVmaGrowsToHoldAHugePage) {
  KernelConfig config = config_of();
  config.thp_enabled = ThpEnabled::kAlways;
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    const VirtAddr at = m.mmap(t, 5, kAligned);
    m.write(t, at);
    EXPECT_TRUE(m.pages().may_enter_khugepaged()) << "no room for a huge page";
    m.mmap(t, 3, at + 5 * m.page());
    EXPECT_FALSE(m.pages().may_enter_khugepaged()) << "merged";
    t.sleep(110_ms);
  });
  EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
}

TEST(Khugepaged, TheProcessMayEndOrExecAtAnyTime) {
  // The collapse of one range takes about 35 us from 100 ms on: end in each phase of it.
  for (std::int64_t us = 99'990; us < 100'120; us += 3) {
    ToyMachine m(toy_profile(), config_of());
    m.run([&](Task& t) {
      Process& child = *sys_fork(t, m.process()).value();
      const auto at = sys_mmap(t, child, kAligned, 16 * m.page(), kProtRead | kProtWrite,
                               kMapPrivate | kMapAnonymous | kMapFixed);
      ASSERT_TRUE(at.ok());
      user_access(t, child, kAligned, Access::kWrite);
      user_access(t, child, kAligned + m.huge(), Access::kWrite);
      sys_madvise(t, child, kAligned, 2 * m.huge(), Madvise::kHugepage);
      const Time entered = t.now();
      t.sleep(Duration::us(us) - (t.now() - entered));
      if (us % 2 == 0)
        sys_exit_group(t, child);
      else
        sys_execve(t, child);
      t.sleep(10_ms);
    });
    EXPECT_LE(collapsed(m), 2U);
    EXPECT_EQ(m.vmstat().nr_anon_transparent_hugepages, 0);
  }
}

TEST(Khugepaged, DoesntRunWithoutHugePages) {
  for (const bool run : {true, false}) {
    KernelConfig config = config_of();
    config.khugepaged_run = run;
    if (run) config.thp_enabled = ThpEnabled::kNever;
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      touch_one_page_each(m, t, 1);
      advise(m, t, 1);
      t.sleep(500_ms);
    });
    EXPECT_EQ(m.engine.tasks().size(), 1U);
    EXPECT_EQ(collapsed(m), 0U);
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
