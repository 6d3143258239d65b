// SPDX-License-Identifier: Apache-2.0
//
// Pages that come without an access: MAP_POPULATE, mlock, MADV_POPULATE_*; and mincore,
// which sees them.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

// One letter a page: '#' there, '.' not.
std::string resident(Thread& t, VirtAddr at, std::uint64_t pages) {
  std::vector<std::uint8_t> present;
  const std::uint64_t page = t.process.kernel().profile().geometry.page_size();
  EXPECT_EQ(sys_mincore(t.task, t.process, at, pages * page, present), Errno::kOk);
  std::string text;
  for (const std::uint8_t there : present) text += there != 0 ? '#' : '.';
  return text;
}

TEST(Populate, MapPopulateFaultsEachPageAndCountsIt) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t before = m.process().minflt;
    const VirtAddr at = t.mmap(6 * m.page(), kRw, kAnon | kMapPopulate);
    EXPECT_EQ(resident(t, at, 6), "######");
    EXPECT_EQ(m.process().minflt - before, 6U);
    EXPECT_TRUE(m.mm().pages().accessible(at, Access::kWrite));
    const VirtAddr lazy = t.mmap(2 * m.page(), kRw, kAnon | kMapPopulate | kMapNonblock);
    EXPECT_EQ(resident(t, lazy, 2), "..") << "MAP_NONBLOCK takes it back";
  });
}

TEST(Populate, AHugePageIsOneFault) {
  Machine m("x86-4k", "6.1", [](KernelConfig& c) { c.thp_enabled = ThpEnabled::kAlways; });
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr hint{0x10000000};
    const std::uint64_t before = m.process().minflt;
    EXPECT_TRUE(t.mmap_at(hint, 4 * kMiB, kRw, kAnon | kMapPopulate).ok());
    EXPECT_EQ(m.process().minflt - before, 2U);
  });
}

TEST(Populate, ReadOnlyMemoryGetsZeroPages) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(2 * m.page(), kProtRead, kAnon | kMapPopulate);
    EXPECT_EQ(m.mm().pages().look(at).kind, PageView::kZero);
  });
}

TEST(Populate, AdviceChecksRightsAndStopsAtAHole) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(6 * page);
    t.munmap(at + 2 * page, 2 * page);
    EXPECT_EQ(t.madvise(at, 6 * page, Madvise::kPopulateWrite), Errno::kENOMEM);
    EXPECT_EQ(resident(t, at, 2), "##");
    EXPECT_EQ(resident(t, at + 4 * page, 2), "..") << "nothing beyond the hole";
    t.mprotect(at + 4 * page, page, kProtRead);
    t.mprotect(at + 5 * page, page, kProtNone);
    EXPECT_EQ(t.madvise(at + 4 * page, page, Madvise::kPopulateWrite), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(at + 4 * page, page, Madvise::kPopulateRead), Errno::kOk);
    EXPECT_EQ(t.madvise(at + 5 * page, page, Madvise::kPopulateRead), Errno::kEINVAL);
  });
}

TEST(Mlock, FaultsInAndKeepsMergingWithItsLikeOnly) {
  Machine m("x86-4k", "6.18");
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(6 * page);
    EXPECT_EQ(sys_mlock(task, m.process(), at + 2 * page + 100, page), Errno::kOk)
        << "spans two pages";
    EXPECT_EQ(m.maps(at, 6),
              (std::vector<std::string>{"0-2 rw-", "2-4 rw- lo", "4-6 rw-"}));
    EXPECT_EQ(resident(t, at, 6), "..##..");
    EXPECT_EQ(m.mm().locked_vm, 2U);
    EXPECT_EQ(t.madvise(at + 2 * page, page, Madvise::kDontneed), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(at + 2 * page, page, Madvise::kDontneedLocked), Errno::kOk);
    EXPECT_EQ(resident(t, at, 6), "...#..");
    EXPECT_EQ(sys_munlock(task, m.process(), at, 6 * page), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (std::vector<std::string>{"0-6 rw-"}));
    EXPECT_EQ(m.mm().locked_vm, 0U);
  });
}

TEST(Mlock, OnFaultLocksWithoutTouching) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(2 * m.page());
    EXPECT_EQ(sys_mlock(task, m.process(), at, 2 * m.page(), MlockMode::kOnfault),
              Errno::kOk);
    EXPECT_EQ(resident(t, at, 2), "..");
    EXPECT_EQ(m.mm().locked_vm, 2U);
    t.munmap(at, m.page());
    EXPECT_EQ(m.mm().locked_vm, 1U);
  });
}

TEST(Mlock, GrowingOrOpeningLockedMemoryFaultsItIn) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(8 * page, kProtNone);
    t.munmap(at, 8 * page);
    EXPECT_TRUE(t.mmap_at(at, 2 * page, kProtRead, kAnon | kMapFixed | kMapLocked).ok());
    EXPECT_EQ(m.mm().pages().look(at).kind, PageView::kZero);
    EXPECT_EQ(t.mprotect(at, 2 * page, kRw), Errno::kOk);
    EXPECT_EQ(m.mm().pages().look(at).kind, PageView::kBase);
    EXPECT_EQ(t.mremap(at, 2 * page, 4 * page, 0).value(), at);
    EXPECT_EQ(resident(t, at, 4), "####");
    EXPECT_EQ(m.mm().locked_vm, 4U);
  });
}

TEST(Mlock, LockedPagesAreNotFreedLazilyEvenByAnotherProcess) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(2 * page);
    EXPECT_EQ(t.write(at), Signal::kNone);
    EXPECT_EQ(t.write(at + page), Signal::kNone);
    EXPECT_EQ(sys_mlock(task, m.process(), at, page), Errno::kOk);
    Process& child = *sys_fork(task, m.process()).value();
    EXPECT_EQ(sys_munlock(task, child, at, 2 * page), Errno::kOk) << "nothing to do";
    sys_exit_group(task, m.process());
    EXPECT_EQ(user_access(task, child, at, Access::kWrite), Signal::kNone);
    EXPECT_EQ(sys_madvise(task, child, at, 2 * page, Madvise::kFree), Errno::kOk);
    const VirtAddr other = sys_mmap(task, child, {}, page, kProtRead, kAnon).value();
    EXPECT_EQ(sys_madvise(task, child, other, page, Madvise::kDontneed), Errno::kOk)
        << "drains";
    EXPECT_TRUE(child.mm().pages().look(at).lazyfree) << "the locker is gone";
  });
}

TEST(Mlock, DontunmapLeavesPagesLockedInAnUnlockedVma) {
  Machine m("x86-4k", "6.18");
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(4 * page);
    EXPECT_EQ(sys_mlock(task, m.process(), at, 4 * page), Errno::kOk);
    EXPECT_TRUE(t.mremap(at, page, page, kMremapMaymove | kMremapDontunmap).ok());
    EXPECT_EQ(m.mm().vma_at(at)->vm_flags & VM_LOCKED, 0U);
    EXPECT_EQ(t.madvise(at, 4 * page, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(t.madvise(at, page, Madvise::kDontneed), Errno::kOk) << "drains the batch";
    EXPECT_FALSE(m.mm().pages().look(at + 2 * page).lazyfree);
    EXPECT_EQ(sys_mlock(task, m.process(), at, 4 * page), Errno::kOk);
    EXPECT_EQ(sys_munlock(task, m.process(), at, 4 * page), Errno::kOk);
    EXPECT_EQ(t.madvise(at, 4 * page, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(t.madvise(at, page, Madvise::kDontneed), Errno::kOk);
    EXPECT_TRUE(m.mm().pages().look(at + 2 * page).lazyfree);
  });
}

TEST(Mlock, AnswersAsPosixWants) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(4 * page, kProtNone);
    const auto lock = [&](VirtAddr start, std::uint64_t n) {
      return sys_mlock(task, m.process(), start, n);
    };
    EXPECT_EQ(lock(at, page), Errno::kENOMEM) << "nothing can be faulted into PROT_NONE";
    EXPECT_EQ(lock(at, 0), Errno::kOk);
    EXPECT_EQ(lock(at, ~std::uint64_t{0} - 2 * page), Errno::kEINVAL) << "wraps";
    t.munmap(at + page, page);
    EXPECT_EQ(lock(at + page, page), Errno::kENOMEM);
    EXPECT_EQ(sys_munlock(task, m.process(), at, 4 * page), Errno::kENOMEM) << "a hole";
  });
}

TEST(Mincore, ChecksItsArguments) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(4 * m.page());
    t.munmap(at + 2 * m.page(), m.page());
    std::vector<std::uint8_t> present;
    EXPECT_EQ(sys_mincore(task, m.process(), at + 1, 1, present), Errno::kEINVAL);
    EXPECT_EQ(sys_mincore(task, m.process(), at, m.profile().layout.task_size, present),
              Errno::kENOMEM);
    EXPECT_EQ(present.size(), 0U);
    EXPECT_EQ(sys_mincore(task, m.process(), at, 4 * m.page(), present), Errno::kENOMEM);
    EXPECT_EQ(present.size(), 2U) << "what lies before the hole was answered";
  });
}

TEST(Prctl, NamesKeepNeighboursApart) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(6 * page);
    const auto name = [&](VirtAddr start, std::uint64_t n, std::string_view text) {
      return sys_prctl_set_vma_anon_name(task, m.process(), start, n, text);
    };
    EXPECT_EQ(name(at + 2 * page, 2 * page, "arena"), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6).size(), 3U);
    EXPECT_EQ(m.mm().vma_at(at + 2 * page)->anon_name, "arena");
    EXPECT_EQ(name(at, 2 * page, "arena"), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (std::vector<std::string>{"0-4 rw-", "4-6 rw-"}));
    EXPECT_EQ(name(at, 4 * page, ""), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (std::vector<std::string>{"0-6 rw-"}));
    EXPECT_EQ(name(at, page, "a[b]"), Errno::kEINVAL);
    EXPECT_EQ(name(at, page, std::string(80, 'x')), Errno::kEINVAL);
    EXPECT_EQ(name(at, page, std::string(79, 'x')), Errno::kOk);
    EXPECT_EQ(name(VirtAddr{0x400000}, page, "text"), Errno::kEBADF) << "a file's";
  });
}

TEST(Prctl, ThpDisableKeepsFaultsSmall) {
  Machine m("x86-4k", "6.1", [](KernelConfig& c) { c.thp_enabled = ThpEnabled::kAlways; });
  m.run([&](Task& task) {
    Thread t(task, m);
    EXPECT_EQ(sys_prctl_set_thp_disable(task, m.process(), true), Errno::kOk);
    const VirtAddr at = t.mmap(8 * kMiB);
    const VirtAddr middle{(at.v + 4 * kMiB) & ~(2 * kMiB - 1)};
    EXPECT_EQ(t.write(middle), Signal::kNone);
    EXPECT_EQ(m.mm().pages().look(middle).kind, PageView::kBase);
    EXPECT_EQ(sys_prctl_set_thp_disable(task, m.process(), false), Errno::kOk);
    EXPECT_EQ(t.write(middle - 2 * kMiB), Signal::kNone);
    EXPECT_EQ(m.mm().pages().look(middle - 2 * kMiB).kind, PageView::kHuge);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
