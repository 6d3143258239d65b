// SPDX-License-Identifier: Apache-2.0
//
// Where volatile ranges meet the rest of the kernel: pages that are shared, moved, locked,
// swapped out; pointers into purged memory; a discard that somebody overtakes.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/vrange_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;
using enum VrangeVersion;

const auto kSwapOn = [](KernelConfig& c) { c.swap_size = 64 * kMiB; };

TEST(VrangeEdges, ALengthBeyondTheTasksEndMarksWhatThereIs) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-8");
    constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
    EXPECT_EQ(sys_vrange(task, *m.process, m.page(0), kHuge, 0, {}).value(), 0U);
    m.kernel->mm_shared().lrus.start();
    ScanControl sc;
    sc.why = ScanControl::For::kKswapd;
    EXPECT_GE(m.kernel->mm_shared().vranges().discard_vrange_pages(task, 0, 1, sc), 8U);
    EXPECT_EQ(m.draw(8), "xxxxxxxx");
  });
}

// put_user() writes four bytes.
TEST(VrangeEdges, ThePointerMayLieAcrossTwoPages) {
  VrangeMachine m(k8);
  m.run([&](Task& task) {
    m.map_area(task, 4);
    int purged = 7;
    const auto call = [&](VirtAddr pointer) {
      return sys_vrange(task, *m.process, m.page(2), k4K, kVrangeVolatile, pointer, &purged)
          .error();
    };
    EXPECT_EQ(call(m.page(4) - 2), Errno::kEFAULT);
    EXPECT_EQ(m.ranges(), "");
    m.play(task, "W0-4 V0-1 P0-1");
    EXPECT_EQ(call(m.page(0)), Errno::kEFAULT) << "SIGBUS inside the kernel";
    EXPECT_EQ(m.ranges(), "0-1!");
    EXPECT_EQ(purged, 7);
    EXPECT_EQ(call(m.page(2) - 2), Errno::kOk);
  });
}

// The ranges are addresses, the flag is the VMA's.
TEST(VrangeEdges, MremapLeavesTheRangesBehindAndTakesTheFlagAlong) {
  for (const VrangeVersion version : {k7, k8, k10, kVma}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8 V0-8 P0-4");
      EXPECT_TRUE(sys_mremap(task, *m.process, m.page(0), 8 * k4K, 8 * k4K,
                             kMremapMaymove | kMremapFixed, m.page(16))
                      .ok());
      EXPECT_EQ(m.draw(20), "................xxxx");
      const bool flag = version == kVma;
      EXPECT_EQ(m.ranges(), flag ? "16-24!" : "0-8!");
      m.play(task, flag ? "R16-17! P16-24" : "R16-17 P16-24");
      EXPECT_EQ(m.draw(24).substr(16), flag ? "xxxxxxxx" : "zxxxpppp");
    });
  }
}

TEST(VrangeEdges, LockingPurgedMemoryFailsAndUnlockedMemoryMayGoAgain) {
  for (const VrangeVersion version : {k7, k8, kVma}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8 V0-8 P0-2");
      EXPECT_EQ(sys_mlock(task, *m.process, m.page(0), 8 * k4K), Errno::kENOMEM);
      m.play(task, "P0-8");
      EXPECT_EQ(m.draw(8), "xxpppppp") << "locked all the same";
      EXPECT_EQ(sys_munlock(task, *m.process, m.page(0), 8 * k4K), Errno::kOk);
      m.play(task, "P0-8");
      EXPECT_EQ(m.draw(8), "xxxxxxxx");
      for (const Madvise advice : {Madvise::kPopulateRead, Madvise::kPopulateWrite})
        EXPECT_EQ(sys_madvise(task, *m.process, m.page(0), k4K, advice), Errno::kEFAULT);
    });
  }
}

TEST(VrangeEdges, ACopyOnWriteGivesEachItsOwnPageToLose) {
  for (const VrangeVersion version : {k7, k8, k10, kVma}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8 V0-8");
      Process& child = *sys_fork(task, *m.process).value();
      EXPECT_EQ(user_touch(task, child, m.page(0), 2 * k4K, k4K, Access::kWrite),
                Signal::kNone);
      m.play(task, "P0-8");
      const bool inherits = version != k7;
      EXPECT_EQ(m.draw(8), inherits ? "xxxxxxxx" : "xxpppppp");
      EXPECT_EQ(m.draw(8, &child), inherits ? "ppxxxxxx" : "pppppppp");
      EXPECT_EQ(m.ranges(), "0-8!");
      EXPECT_EQ(m.ranges(&child), inherits ? "0-8!" : "");
    });
  }
}

TEST(VrangeEdges, SwappedOutPagesAreKeptAndPageoutDiscards) {
  for (const VrangeVersion version : {k7, k8, k10, kVma}) {
    VrangeMachine m(version, kSwapOn);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8");
      const auto pageout = [&](std::uint64_t pages) {
        return sys_madvise(task, *m.process, m.page(0), pages * k4K, Madvise::kPageout);
      };
      EXPECT_EQ(pageout(2), Errno::kOk);
      m.play(task, "V0-6 P0-4");
      EXPECT_EQ(m.draw(8), "ssxxpppp");
      EXPECT_EQ(pageout(8), Errno::kOk);
      EXPECT_EQ(m.draw(8), "ssxxxxss") << "what is volatile isn't written";
      m.play(task, "N0-6=1 R0-8");
      EXPECT_EQ(m.draw(8), "ppzzzzpp");
    });
  }
}

// Somebody un-marks the range while the discard waits for the page table's lock, or for
// that of the ranges: either the page is kept, or he is told.
TEST(VrangeEdges, WhoOvertakesADiscardIsNeverToldIntactForNothing) {
  for (const VrangeVersion version : {k7, k8, k10, kVma}) {
    SCOPED_TRACE(static_cast<int>(version));
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8 V0-8");
      m.kernel->mm_shared().lrus.start();
      PageTables& pages = m.process->mm().pages();
      const Pfn page = pages.look(m.page(0)).pfn;
      bool gone = false, done = false;
      m.engine.spawn("kswapd", [&](Task& other) {
        Lru& lru = m.kernel->mm_shared().lrus;
        Vranges& vranges = m.kernel->mm_shared().vranges();
        EXPECT_TRUE(lru.isolate(page));
        gone = vranges.is_volatile(other, page) && vranges.try_to_discard(other, page);
        lru.putback(page, other.cpu());
        done = true;
      });
      int purged = 0;
      SysResult<std::uint64_t> answer = Errno::kEINVAL;
      const auto unmark = [&] {
        answer = m.vrange(task, 0, 8, kVrangeNovolatile, &purged);
      };
      {
        Ptl lock(task, pages, pages.tree().find_pte_table(m.page(0))->page);
        task.charge(Duration::us(50));
        task.sync();
        if (version == kVma) unmark();
      }
      if (version != kVma) unmark();
      sys_nanosleep(task, *m.process, Duration::ms(1));
      EXPECT_TRUE(done);
      const bool told = version >= k8 ? purged == 1 : answer.value() == 1;
      EXPECT_EQ(gone, told);
    });
  }
}

// Reclaim comes to page tables by the reverse map, without mmap_lock.
TEST(VrangeEdges, ExecWaitsForWhoIsStillAtTheOldPageTables) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task, 8);
    bool left = false;
    m.engine.spawn("kswapd", [&](Task& other) {
      const MmGrab grab(m.process->mm());
      other.sleep(Duration::ms(5));
      left = true;
    });
    task.sleep(Duration::ms(1));
    sys_execve(task, *m.process);
    EXPECT_TRUE(left);
  });
}

}  // namespace
}  // namespace faultline::kernel
