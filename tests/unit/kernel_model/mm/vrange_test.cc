// SPDX-License-Identifier: Apache-2.0
//
// Volatile ranges, rule by rule: how they merge and are cut, what an access finds, what
// fork, munmap, mlock and huge pages do to them.  The call itself is vrange_call_test.cc;
// who is purged when, vrange_reclaim_test.cc.
#include <gtest/gtest.h>

#include "kernel_model/proc/files.h"
#include "kernel_model/proc/vrange.h"
#include "tests/unit/kernel_model/mm/vrange_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;
using enum VrangeVersion;

// --- the tree

struct TreeRow {
  const char* what;
  const char* script;
  const char* ranges;
};
const TreeRow kTreeRows[] = {
    {"one range", "V2-6", "2-6"},
    {"neighbours stay apart", "V2-6 V6-8 V0-2", "0-2 2-6 6-8"},
    {"overlap at the right merges", "V2-6 V4-9", "2-9"},
    {"overlap at the left merges", "V4-9 V2-6", "2-9"},
    {"a bridge merges all that it touches", "V0-2 V4-6 V8-9 V1-9", "0-9"},
    {"a larger one swallows", "V2-3 V5-6 V0-8", "0-8"},
    {"inside of one: nothing to do", "V0-8 V2-4", "0-8"},
    {"merging inherits the purge", "W0-2 V0-2 P0-2 V1-6", "0-6!"},
    {"a purge doesn't taint a neighbour", "W0-4 V0-2 V2-4 P0-2", "0-2! 2-4"},
    {"un-marking all of it", "V2-6 N2-6=0", ""},
    {"more than all of it", "V2-6 N0-9=0", ""},
    {"un-marking what isn't marked", "V2-6 N7-9=0 N0-2=0", "2-6"},
    {"the left part", "V2-6 N0-4=0", "4-6"},
    {"exactly from the left edge", "V2-6 N2-4=0", "4-6"},
    {"the right part", "V2-6 N4-9=0", "2-4"},
    {"exactly to the right edge", "V2-6 N4-6=0", "2-4"},
    {"the middle", "V2-6 N3-5=0", "2-3 5-6"},
    {"several at once", "V0-2 V3-5 V6-9 N1-7=0", "0-1 7-9"},
    {"a purged one answers 1", "W0-4 V0-4 P0-1 N0-4=1", ""},
    {"purged is per range: an intact part answers 1, too", "W0-4 V0-4 P0-1 N2-3=1",
     "0-2! 3-4!"},
    {"both halves keep the flag", "W0-4 V0-4 P0-1 N1-3=1 N0-1=1 N3-4=1", ""},
    {"a trimmed one keeps it", "W0-4 V0-4 P0-4 N0-2=1 N2-4=1", ""},
    {"one purged among several answers 1", "W0-9 V0-3 V3-6 P3-6 V6-9 N0-9=1", ""},
    {"marked anew after un-marking it is intact", "W0-4 V0-4 P0-4 N0-4=1 V0-4 N0-4=0", ""},
};

TEST(VrangeTree, MergesCutsAndRemembers) {
  for (const VrangeVersion version : {k7, k8, k9, k10})
    for (const TreeRow& row : kTreeRows) {
      SCOPED_TRACE(row.what);
      VrangeMachine m(version);
      m.run([&](Task& task) {
        m.map_area(task);
        m.play(task, row.script);
        EXPECT_EQ(m.ranges(), row.ranges);
        EXPECT_EQ(m.kernel->mm_shared().vranges().nodes(),
                  m.process->mm().vranges()->all().size())
            << "each node is in the tree or freed";
      });
    }
}

// The list by age, oldest first.
std::string by_age(VrangeMachine& m) {
  std::string text;
  for (const Vrange* v = m.kernel->mm_shared().vranges().oldest(); v != nullptr;
       v = v->newer)
    text +=
        (text.empty() ? "" : " ") + std::to_string((v->start - VrangeMachine::kArea) / k4K);
  return text;
}

struct AgeRow {
  const char* what;
  const char* script;
  const char* v7;
  const char* v9;
};
const AgeRow kAgeRows[] = {
    {"by marking", "V0-2 V4-6 V2-4", "0 4 2", "0 4 2"},
    {"marked again exactly: v7 moves it, v9 sees it is volatile", "V0-2 V4-6 V0-2", "4 0",
     "0 4"},
    {"marked inside: stays", "V0-4 V4-6 V1-2", "0 4", "0 4"},
    {"at an edge: v7 moves it", "V0-4 V4-6 V0-2", "4 0", "0 4"},
    {"a trimmed one is young", "V0-4 V4-6 N0-1", "4 1", "4 1"},
    {"a split one, too", "V0-4 V4-6 N1-2", "4 0 2", "4 0 2"},
    {"purged or not makes no difference", "W0-8 V0-2 V4-6 P0-2 V2-4", "0 4 2", "0 4 2"},
};

TEST(VrangeTree, TheListIsInTheOrderOfMarking) {
  for (const AgeRow& row : kAgeRows)
    for (const VrangeVersion version : {k7, k9, k10}) {
      SCOPED_TRACE(row.what);
      VrangeMachine m(version);
      m.run([&](Task& task) {
        m.map_area(task);
        m.play(task, row.script);
        EXPECT_EQ(by_age(m), version == k7 ? row.v7 : row.v9);
      });
    }
}

TEST(VrangeTree, V8HasNoList) {
  VrangeMachine m(k8);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "V0-2 V4-6 N4-5");
    EXPECT_EQ(m.kernel->mm_shared().vranges().oldest(), nullptr);
  });
}

// --- what an access finds

struct AccessRow {
  const char* what;
  const char* script;
  const char* pages;
  const char* ranges;
};
const AccessRow kAccessRows[] = {
    {"not purged: no fault, no change", "W0-4 V0-4 W0-4 R0-4", "pppp", "0-4"},
    {"purged: marks", "W0-4 V0-4 P0-4", "xxxx", "0-4!"},
    {"only what is volatile goes", "W0-4 V1-3 P0-4", "pxxp", "1-3!"},
    {"a touch of a purged page: SIGBUS", "W0-4 V0-4 P0-1 R0-1! W0-1! W1-4", "xppp", "0-4!"},
    {"un-marked: zeros", "W0-4 V0-4 P0-2 N0-4=1 R0-1 W1-2", "zppp", ""},
    {"the mark stays until somebody looks", "W0-4 V0-4 P0-4 N0-4=1", "xxxx", ""},
    {"marked again before that: intact, zeros", "W0-4 V0-4 P0-4 N0-4=1 V0-4 W0-1", "pxxx",
     "0-4"},
    {"a page never touched faults in and is volatile", "V0-4 W0-2 P0-4", "xx..", "0-4!"},
    {"nothing there: nothing purged", "V0-4 P0-4", "....", "0-4"},
};

TEST(VrangeAccess, FindsWhatTheRangesSay) {
  for (const VrangeVersion version : {k7, k8, k10, kVma})
    for (const AccessRow& row : kAccessRows) {
      SCOPED_TRACE(row.what);
      VrangeMachine m(version);
      m.run([&](Task& task) {
        m.map_area(task);
        m.play(task, row.script);
        EXPECT_EQ(m.draw(4), row.pages);
        EXPECT_EQ(m.ranges(), row.ranges);
      });
    }
}

TEST(VrangeAccess, ZeroFillInsteadOfSigbusIfThatWasBuilt) {
  VrangeMachine m(k7, [](KernelConfig& c) { c.vrange_fault = VrangeFault::kZeroFill; });
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-4 V0-4 P0-4 W0-1 R1-2 N0-4=1");
    EXPECT_EQ(m.draw(4), "pzxx");
    EXPECT_EQ(m.vmstat().vrange_sigbus, 0U);
  });
}

TEST(VrangeAccess, AFaultOnAPurgedPageMakesItsRangeYoung) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-8 V0-2 V4-6 P0-2");
    EXPECT_EQ(by_age(m), "0 4");
    m.play(task, "R1-2!");
    EXPECT_EQ(by_age(m), "4 0");
    EXPECT_EQ(m.vmstat().vrange_sigbus, 1U);
  });
}

TEST(VrangeAccess, CountsRssAndMincore) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-4 V0-4");
    const std::uint64_t rss = m.process->mm().rss_anon;
    m.play(task, "P0-3");
    EXPECT_EQ(m.process->mm().rss_anon, rss - 3);
    EXPECT_EQ(m.vmstat().pgdiscard_kswapd, 3U);
    EXPECT_EQ(m.vmstat().vrange_purged, 1U) << "one range";
    std::vector<std::uint8_t> present;
    EXPECT_EQ(sys_mincore(task, *m.process, m.page(0), 4 * k4K, present), Errno::kOk);
    EXPECT_EQ(present, (std::vector<std::uint8_t>{0, 0, 0, 1}));
  });
}

TEST(VrangeAccess, WhatIsKeptHoldsWhatWasWritten) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-2");
    const Pfn first = m.process->mm().pages().look(m.page(0)).pfn;
    m.kernel->contents()->wrote(first, 42);
    m.kernel->contents()->wrote(m.process->mm().pages().look(m.page(1)).pfn, 43);
    m.play(task, "V0-2 P1-2 N0-2=1 R0-2");
    EXPECT_EQ(m.kernel->contents()->byte(first), 42);
    EXPECT_EQ(m.draw(2), "pz");
  });
}

// --- who else has the page, and what happens to the mapping

TEST(VrangeFork, TheChildOfV7InheritsNothing) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-4 V0-4 P0-1");
    Process& child = *sys_fork(task, *m.process).value();
    EXPECT_EQ(m.ranges(&child), "");
    EXPECT_EQ(m.draw(4, &child), "xppp");
    // A page that the child has and did not mark stays.
    m.play(task, "P0-4");
    EXPECT_EQ(m.draw(4), "xppp");
    EXPECT_EQ(user_access(task, child, m.page(0), Access::kRead), Signal::kNone);
    EXPECT_EQ(m.draw(4, &child), "zppp");
    sys_exit_group(task, child);
    m.play(task, "P0-4");
    EXPECT_EQ(m.draw(4), "xxxx");
  });
}

TEST(VrangeFork, TheChildOfV8GetsACopyWithThePurgedState) {
  for (const VrangeVersion version : {k8, k10}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task);
      m.play(task, "W0-8 V0-4 V4-8 P0-1");
      Process& child = *sys_fork(task, *m.process).value();
      EXPECT_EQ(m.ranges(&child), "0-4! 4-8");
      EXPECT_EQ(user_access(task, child, m.page(0), Access::kRead), Signal::kBus);
      m.play(task, "P0-8");
      EXPECT_EQ(m.draw(8), "xxxxxxxx") << "both have it volatile";
      EXPECT_EQ(m.draw(8, &child), "xxxxxxxx");
      EXPECT_EQ(m.ranges(&child), "0-4! 4-8!");
      sys_execve(task, child);
      EXPECT_EQ(m.ranges(&child), "") << "cleared on exec";
      sys_exit_group(task, child);
      EXPECT_EQ(m.kernel->mm_shared().vranges().nodes(), 2U);
    });
  }
}

TEST(VrangeUnmap, V7KeepsStaleRangesAndV8ClearsThemUnderANewMapping) {
  for (const VrangeVersion version : {k7, k8, k9, k10}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "V0-8");
      EXPECT_EQ(sys_munmap(task, *m.process, m.page(2), 4 * k4K), Errno::kOk);
      EXPECT_EQ(m.ranges(), "0-8") << "munmap does nothing";
      const auto again = sys_mmap(task, *m.process, m.page(3), k4K, kRw, kAnon | kMapFixed);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(m.ranges(), version == k7 ? "0-8" : "0-3 4-8");
      m.play(task, "W3-4 P0-8");
      EXPECT_EQ(m.draw(4), version == k7 ? "...x" : "...p") << "a stale range bites";
    });
  }
}

TEST(VrangeUnmap, MprotectLeavesRangesAlone) {
  VrangeMachine m(k8);
  m.run([&](Task& task) {
    m.map_area(task, 8);
    m.play(task, "W0-8 V0-8");
    EXPECT_EQ(sys_mprotect(task, *m.process, m.page(2), 2 * k4K, kProtRead), Errno::kOk);
    EXPECT_EQ(m.ranges(), "0-8");
    m.play(task, "P0-8");
    EXPECT_EQ(m.draw(8), "xxxxxxxx");
  });
}

TEST(VrangeUnmap, DontneedTakesTheMarkAndExitTheRanges) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task, 8);
    m.play(task, "W0-2 V0-2 P0-2");
    EXPECT_EQ(sys_madvise(task, *m.process, m.page(0), k4K, Madvise::kDontneed),
              Errno::kOk);
    EXPECT_EQ(m.draw(2), ".x");
    m.play(task, "R0-1 R1-2!");
    Process& other = m.kernel->create_process("other");
    const auto at = sys_mmap(task, other, {}, kMiB, kRw, kAnon);
    EXPECT_TRUE(sys_vrange(task, other, at.value(), kMiB, 0, {}).ok());
    EXPECT_EQ(m.kernel->mm_shared().vranges().nodes(), 2U);
    sys_exit_group(task, other);
    EXPECT_EQ(m.kernel->mm_shared().vranges().nodes(), 1U);
  });
}

TEST(VrangeLocked, PagesOfLockedMemoryAreNeverDiscarded) {
  for (const VrangeVersion version : {k7, k8}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task, 8);
      m.play(task, "W0-8 V0-8");
      EXPECT_EQ(sys_mlock(task, *m.process, m.page(2), 2 * k4K), Errno::kOk);
      m.play(task, "P0-8");
      EXPECT_EQ(m.draw(8), "xxppxxxx");
    });
  }
}

TEST(VrangeHuge, V7SkipsHugePagesAndV10SplitsThem) {
  for (const VrangeVersion version : {k7, k8, k9, k10}) {
    VrangeMachine m(version, [](KernelConfig& c) { c.thp_enabled = ThpEnabled::kAlways; });
    m.run([&](Task& task) {
      m.map_area(task, 1024);
      m.play(task, "W0-1024 V0-1024 P0-1024");
      const bool splits = version == k10;
      EXPECT_EQ(m.vmstat().thp_split_page, splits ? 2U : 0U);
      EXPECT_EQ(m.draw(4), splits ? "xxxx" : "HHHH");
      EXPECT_EQ(m.vmstat().pgdiscard_kswapd, splits ? 1024U : 0U);
    });
  }
}

TEST(VrangeProc, ShowsTheRangesOfAProcess) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "W0-2 V0-2 V4-6 P0-2");
    EXPECT_EQ(vrange_text(m.process->mm()),
              "10000000-10002000 purged\n10004000-10006000 intact\n");
    bool found = false;
    for (const PseudoFile& file : proc_files(*m.kernel)) {
      if (file.path == "proc/1/vrange") found = !file.text.empty();
      if (file.path == "proc/vmstat") {
        EXPECT_NE(file.text.find("pgdiscard_kswapd 2\n"), std::string::npos);
      }
    }
    EXPECT_TRUE(found);
  });
}

}  // namespace
}  // namespace faultline::kernel
