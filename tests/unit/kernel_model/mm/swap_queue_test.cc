// SPDX-License-Identifier: Apache-2.0
//
// The swap device with a queue: who waits for what it has to do, and who doesn't.
#include "kernel_model/mm/vmscan.h"
#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr std::uint64_t kSlots = 512 * kMiB / k4K;

auto with_queue(unsigned depth, Duration write = Duration::us(25)) {
  return [=](KernelConfig& c) {
    c.swap_size = kSlots * k4K;
    c.swap_queue_depth = depth;
    c.swap_write = write;
  };
}

// Fills 200 MiB on a machine of 128, which writes more than 70 MiB to swap.
VirtAddr overfill(Small& m, Task& task) {
  const VirtAddr p = m.map(task, 200 * kMiB);
  EXPECT_EQ(m.touch(task, p, 200 * kMiB), Signal::kNone);
  EXPECT_GT(m.vmstat().pswpout, 70 * kMiB / k4K);
  return p;
}

Duration time_to_overfill(unsigned depth) {
  Small m(with_queue(depth));
  Duration time;
  m.run([&](Task& task) {
    const Time start = task.now();
    overfill(m, task);
    time = task.now() - start;
  });
  return time;
}

Swap& swap_of(Small& m) {
  return m.kernel->mm_shared().swap;
}

// The first page of the range whose swap entry is in the swap cache, or isn't.
VirtAddr swapped(Small& m, VirtAddr from, bool in_cache) {
  const PageTables& pages = m.process->mm().pages();
  while (pages.look(from).kind != PageView::kSwap ||
         swap_of(m).cached(pages.look(from).pfn.v).has_value() != in_cache)
    from = from + k4K;
  return from;
}

TEST(SwapQueue, ReclaimGoesOnUntilTheQueueIsFull) {
  const Duration none = time_to_overfill(0);
  const Duration deep = time_to_overfill(1 << 20);
  const Duration shallow = time_to_overfill(64);
  const Duration writes = Duration::us(25) * std::int64_t{70 * kMiB / k4K};
  EXPECT_GT(none, writes);
  EXPECT_GT(shallow, writes);
  // The pages must be on the device before they are freed, but nobody adds to that.
  EXPECT_LT(deep, shallow);
}

TEST(SwapQueue, WhatIsBeingWrittenIsFreedLater) {
  for (const unsigned depth : {0U, 4096U}) {
    Small m(with_queue(depth));
    m.run([&](Task& task) {
      const VirtAddr p = m.map(task, kMiB);
      EXPECT_EQ(m.touch(task, p, kMiB), Signal::kNone);
      const std::uint64_t free = m.free();
      const std::uint64_t anon = m.process->mm().rss_anon;
      const Time before = task.now();
      EXPECT_EQ(sys_madvise(task, *m.process, p, kMiB, Madvise::kPageout), Errno::kOk);
      EXPECT_EQ(m.process->mm().rss_anon, anon - 256);
      EXPECT_EQ(m.vmstat().pswpout, 256U);
      const Duration writes = Duration::us(25) * std::int64_t{256};
      if (depth == 0) {
        EXPECT_GT(task.now() - before, writes);
        EXPECT_GE(m.free(), free + 128);
      } else {
        EXPECT_LT(task.now() - before, writes);
        EXPECT_LT(m.free(), free + 128);
      }
    });
  }
}

TEST(SwapQueue, APageBeingWrittenComesBackWithoutARead) {
  Small m(with_queue(4096));
  m.run([&](Task& task) {
    const VirtAddr p = overfill(m, task);
    const VirtAddr at = swapped(m, p, true);
    const std::uint64_t in = m.vmstat().pswpin;
    const std::uint64_t majflt = m.process->majflt;
    EXPECT_EQ(user_access(task, *m.process, at, Access::kWrite), Signal::kNone);
    EXPECT_EQ(m.vmstat().pswpin, in);
    EXPECT_EQ(m.process->majflt, majflt);
    EXPECT_EQ(m.process->mm().pages().look(at).kind, PageView::kBase);
    EXPECT_EQ(sys_munmap(task, *m.process, p, 200 * kMiB), Errno::kOk);
  });
}

// free_swap_and_cache() leaves what the device works on; reclaim frees it later.
TEST(SwapQueue, WhatIsFreedWhileBeingWrittenKeepsItsSlotForNow) {
  Small m(with_queue(4096, Duration::ms(1)));
  m.run([&](Task& task) {
    const VirtAddr p = overfill(m, task);
    EXPECT_EQ(sys_munmap(task, *m.process, p, 200 * kMiB), Errno::kOk);
    const std::uint64_t used = kSlots - swap_of(m).free_pages();
    EXPECT_GT(used, 64U);
    EXPECT_LE(used, 4096U + 64);
    sys_nanosleep(task, *m.process, Duration::ms(10'000));
    const VirtAddr again = overfill(m, task);
    EXPECT_EQ(sys_munmap(task, *m.process, again, 200 * kMiB), Errno::kOk);
    EXPECT_LE(kSlots - swap_of(m).free_pages(), 4096U + 64);
  });
}

// A cluster of eight keeps the device as busy as eight writes.
TEST(SwapQueue, AReadTakesTheDevicesTime) {
  for (const unsigned depth : {0U, 4096U}) {
    Small m(with_queue(depth, Duration::us(100)));
    m.run([&](Task& task) {
      const VirtAddr p = overfill(m, task);
      sys_nanosleep(task, *m.process, Duration::ms(5000));  // all is written
      const VirtAddr at = swapped(m, p, false);
      // The second of two clusters that are asked for at once.
      Duration second;
      m.engine.spawn("first", [&](Task& other) {
        EXPECT_EQ(user_access(other, *m.process, at, Access::kRead), Signal::kNone);
      });
      sys_nanosleep(task, *m.process, Duration::us(10));
      const Time before = task.now();
      EXPECT_EQ(
          user_access(task, *m.process, swapped(m, at + 16 * k4K, false), Access::kRead),
          Signal::kNone);
      second = task.now() - before;
      if (depth == 0)
        EXPECT_LT(second, m.kernel->config().swap_read * 2);
      else
        EXPECT_GT(second, Duration::us(600));
    });
  }
}

TEST(SwapQueue, TwoReadersOfAClusterReadItOnce) {
  Small m(with_queue(4096, Duration::us(100)));
  m.run([&](Task& task) {
    const VirtAddr p = overfill(m, task);
    sys_nanosleep(task, *m.process, Duration::ms(5000));
    VirtAddr at = swapped(m, p, false);
    const PageTables& pages = m.process->mm().pages();
    while (pages.look(at).kind != PageView::kSwap || pages.look(at).pfn.v % 8 != 0)
      at = at + k4K;
    const std::uint64_t in = m.vmstat().pswpin;
    m.engine.spawn("first", [&](Task& other) {
      EXPECT_EQ(user_access(other, *m.process, at, Access::kRead), Signal::kNone);
    });
    EXPECT_EQ(user_access(task, *m.process, at, Access::kRead), Signal::kNone);
    sys_nanosleep(task, *m.process, Duration::ms(1));
    EXPECT_LE(m.vmstat().pswpin - in, 8U);
    // What was read ahead waits in the cache and comes with a minor fault.
    const std::uint64_t majflt = m.process->majflt;
    EXPECT_EQ(user_access(task, *m.process, swapped(m, p, true), Access::kRead),
              Signal::kNone);
    EXPECT_EQ(m.process->majflt, majflt);
  });
}

TEST(SwapQueue, ForkedProcessesShareAPageOnItsWay) {
  Small m(with_queue(4096, Duration::ms(1)));
  m.run([&](Task& task) {
    const VirtAddr p = m.map(task, kMiB);
    EXPECT_EQ(m.touch(task, p, kMiB), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, *m.process, p, kMiB, Madvise::kPageout), Errno::kOk);
    Process& child = *sys_fork(task, *m.process).value();
    EXPECT_EQ(user_access(task, child, p, Access::kWrite), Signal::kNone);
    EXPECT_EQ(user_access(task, *m.process, p, Access::kRead), Signal::kNone);
    sys_exit_group(task, child);
    EXPECT_EQ(sys_munmap(task, *m.process, p, kMiB), Errno::kOk);
    EXPECT_LE(kSlots - swap_of(m).free_pages(), 256U);
  });
}

// The parent faults on its swap entry while the page's other mapping still stands: reclaim
// waits for the child's page table.
TEST(SwapQueue, APageThatIsHalfUnmappedIsTakenBackShared) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Small m(with_queue(128));
    m.run([&](Task& task) {
      const VirtAddr p = m.map(task, k4K);
      EXPECT_EQ(m.touch(task, p, k4K), Signal::kNone);
      const Pfn page = m.process->mm().pages().look(p).pfn;
      m.kernel->contents()->wrote(page, 7);
      Process& child = *sys_fork(task, *m.process).value();
      m.engine.spawn("child", [&](Task& other) {
        PageTables& pages = child.mm().pages();
        Ptl lock(other, pages, pages.tree().find_pte_table(p)->page);
        other.charge(Duration::us(500));
        other.sync();
      });
      m.engine.spawn("reclaim", [&](Task& other) {
        m.kernel->mm_shared().vmscan().reclaim_pages(other, {page});
      });
      task.sleep(Duration::us(200));
      EXPECT_EQ(m.process->mm().pages().look(p).kind, PageView::kSwap);
      EXPECT_EQ(m.touch(task, p, k4K, access), Signal::kNone);
      task.sleep(Duration::ms(1));
      EXPECT_EQ(user_access(task, child, p, Access::kRead), Signal::kNone);
      const PageView mine = m.process->mm().pages().look(p),
                     its = child.mm().pages().look(p);
      EXPECT_EQ(its.pfn, page);
      EXPECT_EQ(mine.pfn == page, access == Access::kRead);
      EXPECT_EQ(m.kernel->contents()->byte(mine.pfn), 7);
      EXPECT_EQ(m.kernel->contents()->byte(its.pfn), 7);
      EXPECT_EQ(swap_of(m).free_pages(), kSlots) << "the slot is free";
    });
  }
}

}  // namespace
}  // namespace faultline::kernel
