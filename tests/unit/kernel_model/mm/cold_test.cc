// SPDX-License-Identifier: Apache-2.0
//
// MADV_COLD and MADV_PAGEOUT without swap.  The figures are those of a live 6.18 kernel.
#include <gtest/gtest.h>

#include "kernel_model/proc/vmstat.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr std::uint64_t kHuge = 2 * kMiB;

class ColdAdvice : public ::testing::Test {
 protected:
  ColdAdvice()
      : m("x86-4k", "6.18", [](KernelConfig& c) { c.thp_enabled = ThpEnabled::kAlways; }) {}

  // `count` touched huge pages.
  VirtAddr huge_pages(Thread& t, std::uint64_t count) {
    const VirtAddr at = t.mmap(count * kHuge);
    EXPECT_EQ(at.v % kHuge, 0U);
    EXPECT_EQ(user_touch(t.task, t.process, at, count * kHuge, m.page(), Access::kWrite),
              Signal::kNone);
    return at;
  }
  struct Seen {
    std::uint64_t splits, pmd_splits, dropped, anon;
    bool operator==(const Seen&) const = default;
  };
  Seen seen() {
    const Vmstat& v = m.kernel().vmstat();
    return {v.thp_split_page, v.thp_split_pmd, v.pglazyfreed, m.mm().rss_anon};
  }
  // What `action` changes; `anon` is how many pages go.
  template <typename Action>
  Seen change(Action action) {
    const Seen before = seen();
    action();
    check_invariants(m.kernel());
    const Seen after = seen();
    return {after.splits - before.splits, after.pmd_splits - before.pmd_splits,
            after.dropped - before.dropped, before.anon - after.anon};
  }

  Machine m;
};

TEST_F(ColdAdvice, ColdSplitsAHugePageOnlyIfItIsForAPart) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_EQ(change([&] { EXPECT_EQ(t.madvise(at, kHuge, Madvise::kCold), Errno::kOk); }),
              (Seen{0, 0, 0, 0}));
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, m.page(), Madvise::kCold), Errno::kOk); }),
        (Seen{1, 1, 0, 0}));
  });
}

TEST_F(ColdAdvice, PageoutWithoutSwapTakesHugePagesApart) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, kHuge, Madvise::kPageout), Errno::kOk); }),
        (Seen{1, 1, 0, 0}));
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, kHuge, Madvise::kPageout), Errno::kOk); }),
        (Seen{0, 0, 0, 0}));
  });
}

TEST_F(ColdAdvice, PageoutDropsALazilyFreedHugePage) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_EQ(t.madvise(at, kHuge, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, kHuge, Madvise::kPageout), Errno::kOk); }),
        (Seen{0, 1, 512, 512}));
    EXPECT_FALSE(m.mm().pages().accessible(at, Access::kRead));
  });
}

TEST_F(ColdAdvice, PageoutOnlyUnmapsALazilyFreedHugePageThatWasRewritten) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_EQ(t.madvise(at, kHuge, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(t.write(at), Signal::kNone);
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, kHuge, Madvise::kPageout), Errno::kOk); }),
        (Seen{0, 1, 0, 0}));
    EXPECT_FALSE(m.mm().pages().look(at).lazyfree) << "ordinary again";
  });
}

TEST_F(ColdAdvice, PageoutDropsLazilyFreedBasePagesButNotRewrittenOnes) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_EQ(t.madvise(at, m.page(), Madvise::kCold), Errno::kOk) << "base pages now";
    EXPECT_EQ(t.madvise(at, 32 * m.page(), Madvise::kFree), Errno::kOk);
    EXPECT_EQ(t.write(at), Signal::kNone);
    EXPECT_EQ(change([&] {
                EXPECT_EQ(t.madvise(at, 32 * m.page(), Madvise::kPageout), Errno::kOk);
              }),
              (Seen{0, 0, 31, 31}));
    EXPECT_TRUE(m.mm().pages().accessible(at, Access::kRead));
    EXPECT_FALSE(m.mm().pages().look(at).lazyfree) << "ordinary again";
  });
}

TEST_F(ColdAdvice, SharedPagesAreLeftAlone) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = huge_pages(t, 1);
    EXPECT_TRUE(sys_fork(task, m.process()).ok());
    EXPECT_EQ(
        change([&] { EXPECT_EQ(t.madvise(at, m.page(), Madvise::kPageout), Errno::kOk); }),
        (Seen{0, 0, 0, 0}));
  });
}

TEST_F(ColdAdvice, RefusesLockedMemoryAndOldKernels) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(m.page());
    EXPECT_EQ(sys_mlock(task, m.process(), at, m.page()), Errno::kOk);
    EXPECT_EQ(t.madvise(at, m.page(), Madvise::kCold), Errno::kEINVAL);
  });
  Machine old("x86-4k", "4.15");
  old.run([&](Task& task) {
    Thread t(task, old);
    EXPECT_EQ(t.madvise(t.mmap(old.page()), old.page(), Madvise::kCold), Errno::kEINVAL);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
