// SPDX-License-Identifier: Apache-2.0
//
// Memory runs short: who gives pages, when, and what it costs.
#include <gtest/gtest.h>

#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/system_views.h"
#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

const auto kWithSwap = [](KernelConfig& c) { c.swap_size = 512 * kMiB; };

TEST(Reclaim, NothingHappensAboveTheLowWatermark) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    EXPECT_EQ(m.touch(task, m.map(task, 64 * kMiB), 64 * kMiB), Signal::kNone);
    EXPECT_FALSE(m.kernel->mm_shared().lrus.lists_kept());
    EXPECT_EQ(m.vmstat().pageoutrun, 0U);
  });
}

TEST(Reclaim, KswapdDropsLazilyFreedPagesAndStopsAtTheHighWatermark) {
  Small m;
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 80 * kMiB);
    EXPECT_EQ(m.touch(task, p, 80 * kMiB), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, *m.process, p, 80 * kMiB, Madvise::kFree), Errno::kOk);
    const VirtAddr q = m.map(task, 60 * kMiB);
    for (std::uint64_t at = 0; at < 60 * kMiB; at += kMiB / 8) {
      EXPECT_EQ(m.touch(task, q + at, kMiB / 8), Signal::kNone);
      sys_nanosleep(task, *m.process, Duration::ms(1));  // kswapd keeps ahead
    }
    EXPECT_GT(m.vmstat().pglazyfreed, 15 * kMiB / k4K);
    EXPECT_EQ(m.vmstat().pglazyfreed, m.vmstat().pgsteal_kswapd);
    EXPECT_EQ(m.vmstat().allocstall_normal, 0U);
    EXPECT_GT(m.vmstat().pageoutrun, 0U);
    sys_nanosleep(task, *m.process, Duration::ms(100));
    EXPECT_GT(m.free(), m.kernel->phys().watermarks(0).low);
    EXPECT_LT(m.free(), 2 * m.kernel->phys().watermarks(0).high);
    EXPECT_LT(smaps_rollup(m.process->mm()).lazyfree, 70 * kMiB);
  });
}

TEST(Reclaim, TheOldestLazilyFreedPagesGoFirst) {
  Small m;
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 80 * kMiB);
    EXPECT_EQ(m.touch(task, p, 80 * kMiB), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, *m.process, p + 40 * kMiB, 40 * kMiB, Madvise::kFree),
              Errno::kOk);
    EXPECT_EQ(sys_madvise(task, *m.process, p, 40 * kMiB, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(m.touch(task, m.map(task, 50 * kMiB), 50 * kMiB), Signal::kNone);
    EXPECT_EQ(m.process->mm().pages().look(p + 40 * kMiB).kind, PageView::kNone);
    EXPECT_EQ(m.process->mm().pages().look(p).kind, PageView::kBase);
  });
}

TEST(Reclaim, LazilyFreedPagesThatWereWrittenAreKept) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 40 * kMiB);
    EXPECT_EQ(m.touch(task, p, 40 * kMiB), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, *m.process, p, 40 * kMiB, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(m.touch(task, p, 20 * kMiB), Signal::kNone);
    const std::uint64_t minflt = m.process->minflt;
    EXPECT_EQ(m.touch(task, m.map(task, 100 * kMiB), 100 * kMiB), Signal::kNone);
    EXPECT_LE(m.vmstat().pglazyfreed, 20 * kMiB / k4K);
    EXPECT_GT(m.vmstat().pglazyfreed, 0U);
    EXPECT_GT(m.process->minflt, minflt);
  });
}

TEST(Reclaim, TheDraftOfMadviseFreeLeftPagesOnTheActiveList) {
  const auto active_after = [](bool deactivates) {
    Small m([&](KernelConfig& c) {
      kWithSwap(c);
      c.anon_starts_active = true;
      c.madv_free = MadvFreeRule::k4_5;
      c.madv_free_deactivates = deactivates;
    });
    std::uint64_t active = 0;
    m.run([&](Task& task) {
      const VirtAddr p = m.map(task, 8 * kMiB);
      EXPECT_EQ(m.touch(task, p, 8 * kMiB), Signal::kNone);
      EXPECT_EQ(sys_madvise(task, *m.process, p, 8 * kMiB, Madvise::kFree), Errno::kOk);
      for (VirtAddr at = p; at < p + 8 * kMiB; at = at + k4K) {
        const Pfn page = m.process->mm().pages().look(at).pfn;
        active += (m.kernel->phys().page(page).flags & Page::kActive) != 0 ? 1 : 0;
      }
    });
    return active;
  };
  EXPECT_EQ(active_after(true), 0U);
  EXPECT_EQ(active_after(false), 8 * kMiB / k4K);
}

TEST(Reclaim, WithoutAnythingToReclaimTheLargestProcessIsKilled) {
  Small m;
  m.run([&](Task& task) {
    Process& hog = m.kernel->create_process("hog");
    const VirtAddr h = sys_mmap(task, hog, {}, 90 * kMiB, kRw, kAnon).value();
    EXPECT_EQ(user_touch(task, hog, h, 90 * kMiB, k4K, Access::kWrite), Signal::kNone);
    EXPECT_EQ(m.touch(task, m.map(task, 60 * kMiB), 60 * kMiB), Signal::kNone);
    EXPECT_TRUE(hog.oom_killed);
    EXPECT_EQ(m.vmstat().oom_kill, 1U);
    EXPECT_EQ(hog.mm().rss_anon, 0U);
    EXPECT_EQ(user_access(task, hog, h, Access::kWrite), Signal::kKill);
  });
}

TEST(Reclaim, AloneItIsKilledItself) {
  Small m([](KernelConfig& c) { c.overcommit_memory = 1; });
  m.run([&](Task& task) {
    EXPECT_EQ(m.touch(task, m.map(task, 200 * kMiB), 200 * kMiB), Signal::kKill);
    EXPECT_EQ(m.vmstat().oom_kill, 1U);
  });
}

TEST(Reclaim, SwapTakesWhatMemoryCannotHoldAndGivesItBack) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 200 * kMiB);
    EXPECT_EQ(m.touch(task, p, 200 * kMiB), Signal::kNone);
    EXPECT_GT(m.vmstat().pswpout, 70 * kMiB / k4K);
    const std::uint64_t swapped = m.process->mm().swap_ents;
    EXPECT_EQ(smaps_rollup(m.process->mm()).swap, swapped * k4K);
    ASSERT_EQ(m.process->mm().pages().look(p).kind, PageView::kSwap);
    const Time before = task.now();
    EXPECT_EQ(user_access(task, *m.process, p, Access::kRead), Signal::kNone);
    EXPECT_EQ(m.process->majflt, 1U);
    EXPECT_GE(task.now() - before, m.kernel->config().swap_read);
    EXPECT_GE(m.vmstat().pswpin, 1U);
    EXPECT_EQ(m.process->mm().pages().look(p).kind, PageView::kBase);
    // Its neighbours were read along with it.
    EXPECT_EQ(user_access(task, *m.process, p + k4K, Access::kRead), Signal::kNone);
    EXPECT_EQ(m.process->majflt, 1U);
    EXPECT_EQ(sys_munmap(task, *m.process, p, 200 * kMiB), Errno::kOk);
    EXPECT_LT(m.process->mm().swap_ents, 16U);  // of the program itself
  });
}

TEST(Reclaim, WhatWasSwappedHoldsWhatWasWritten) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 200 * kMiB);
    EXPECT_EQ(user_access(task, *m.process, p, Access::kWrite), Signal::kNone);
    m.kernel->contents()->wrote(m.process->mm().pages().look(p).pfn, 77);
    EXPECT_EQ(m.touch(task, p + k4K, 200 * kMiB - k4K), Signal::kNone);
    ASSERT_EQ(m.process->mm().pages().look(p).kind, PageView::kSwap);
    EXPECT_EQ(user_access(task, *m.process, p, Access::kRead), Signal::kNone);
    EXPECT_EQ(m.kernel->contents()->byte(m.process->mm().pages().look(p).pfn), 77);
  });
}

TEST(Reclaim, PagesInUseGoRoundOnceMore) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr hot = m.map(task, 8 * kMiB);
    EXPECT_EQ(m.touch(task, hot, 8 * kMiB), Signal::kNone);
    const VirtAddr cold = m.map(task, 160 * kMiB);
    for (std::uint64_t at = 0; at < 160 * kMiB; at += kMiB) {
      EXPECT_EQ(m.touch(task, cold + at, kMiB), Signal::kNone);
      EXPECT_EQ(m.touch(task, hot, 8 * kMiB), Signal::kNone);
    }
    std::uint64_t hot_swapped = 0;
    for (std::uint64_t at = 0; at < 8 * kMiB; at += k4K)
      hot_swapped += m.process->mm().pages().look(hot + at).kind == PageView::kSwap ? 1 : 0;
    EXPECT_EQ(hot_swapped, 0U);
    EXPECT_GT(m.vmstat().pgactivate, 0U);
    EXPECT_GT(m.process->mm().swap_ents, 30 * kMiB / k4K);
  });
}

TEST(Reclaim, CachedFilesGoBeforeAnonymousMemory) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    File file(*m.kernel, FileKind::kRegular, "/f", 0);
    EXPECT_EQ(sys_pwrite(task, *m.process, file, 0, 60 * kMiB).value(), 60 * kMiB);
    EXPECT_EQ(m.touch(task, m.map(task, 80 * kMiB), 80 * kMiB), Signal::kNone);
    EXPECT_EQ(m.vmstat().pswpout, 0U);
    EXPECT_LT(file.cached().size(), 50 * kMiB / k4K);
  });
}

TEST(Reclaim, MemoryMaxHoldsTheProgramBelowIt) {
  Small m([](KernelConfig& c) {
    c.swap_size = 512 * kMiB;
    c.memcg_max = 32 * kMiB;
  });
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 64 * kMiB);
    for (std::uint64_t at = 0; at < 64 * kMiB; at += kMiB) {
      EXPECT_EQ(m.touch(task, p + at, kMiB), Signal::kNone);
      EXPECT_LE(m.kernel->mm_shared().vmscan().memcg_usage(), 32 * kMiB / k4K + 64);
    }
    EXPECT_GT(m.vmstat().pswpout, 30 * kMiB / k4K);
    EXPECT_EQ(m.vmstat().oom_kill, 0U);
  });
}

TEST(Reclaim, MemoryMaxWithoutSwapKills) {
  Small m([](KernelConfig& c) { c.memcg_max = 32 * kMiB; });
  m.run([&](Task& task) {
    EXPECT_EQ(m.touch(task, m.map(task, 64 * kMiB), 64 * kMiB), Signal::kKill);
    EXPECT_EQ(m.vmstat().oom_kill, 1U);
    EXPECT_GT(m.free(), 60 * kMiB / k4K);  // the machine has plenty
  });
}

TEST(Reclaim, PageoutSwapsAtOnce) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, kMiB);
    EXPECT_EQ(m.touch(task, p, kMiB), Signal::kNone);
    const std::uint64_t anon = m.process->mm().rss_anon;
    EXPECT_EQ(sys_madvise(task, *m.process, p, kMiB, Madvise::kPageout), Errno::kOk);
    EXPECT_EQ(m.process->mm().rss_anon, anon - 256);
    EXPECT_EQ(m.vmstat().pswpout, 256U);
    EXPECT_EQ(m.touch(task, p, kMiB, Access::kRead), Signal::kNone);
    EXPECT_EQ(m.process->majflt, 256U / 8);  // page_cluster
    EXPECT_EQ(m.kernel->mm_shared().swap.free_pages(), 512 * kMiB / k4K);
  });
}

TEST(Reclaim, ForkedProcessesShareASwappedPage) {
  Small m(kWithSwap);
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, kMiB);
    EXPECT_EQ(m.touch(task, p, kMiB), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, *m.process, p, kMiB, Madvise::kPageout), Errno::kOk);
    Process& child = *sys_fork(task, *m.process).value();
    EXPECT_EQ(child.mm().swap_ents, 256U);
    EXPECT_EQ(user_access(task, child, p, Access::kWrite), Signal::kNone);
    EXPECT_EQ(user_access(task, *m.process, p, Access::kRead), Signal::kNone);
    sys_exit_group(task, child);
    EXPECT_EQ(sys_munmap(task, *m.process, p, kMiB), Errno::kOk);
    EXPECT_EQ(m.kernel->mm_shared().swap.free_pages(), 512 * kMiB / k4K);
  });
}

TEST(Reclaim, HugePagesAreSplitToBeSwapped) {
  Small m([](KernelConfig& c) {
    c.swap_size = 512 * kMiB;
    c.thp_enabled = ThpEnabled::kAlways;
  });
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, 200 * kMiB);
    EXPECT_EQ(m.touch(task, p, 200 * kMiB), Signal::kNone);
    EXPECT_GT(m.vmstat().thp_split_page, 0U);
    EXPECT_GT(m.vmstat().pswpout, 70 * kMiB / k4K);
  });
}

TEST(Reclaim, TheMeminfoShowsSwap) {
  Small m(kWithSwap);
  EXPECT_NE(meminfo_text(*m.kernel).find("SwapTotal:        524288 kB"), std::string::npos);
}

}  // namespace
}  // namespace faultline::kernel
