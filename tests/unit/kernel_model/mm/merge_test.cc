// SPDX-License-Identifier: Apache-2.0
//
// When neighbours are one VMA, and when they come apart.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

using Maps = std::vector<std::string>;

class Merging : public ::testing::Test {
 protected:
  // Six pages at `base`, alone; the body gets them unmapped.
  template <typename Body>
  void with_area(Machine& m, Body body) {
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr at = t.mmap(8 * m.page(), kProtNone);
      t.munmap(at, 8 * m.page());
      body(t, at + m.page(), m.page());
    });
  }
  static void map(Thread& t, VirtAddr at, std::uint64_t n, unsigned prot,
                  unsigned more = 0) {
    EXPECT_TRUE(t.mmap_at(at, n, prot, kAnon | kMapFixed | more).ok());
  }
};

TEST_F(Merging, JoinsBothNeighbours) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 2 * page, kRw);
    map(t, at + 4 * page, 2 * page, kRw);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-2 rw-", "4-6 rw-"}));
    map(t, at + 2 * page, 2 * page, kRw);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-6 rw-"}));
  });
}

TEST_F(Merging, NeedsEqualFlags) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, page, kRw);
    map(t, at + page, page, kProtRead);
    map(t, at + 2 * page, page, kRw, kMapNoreserve);
    map(t, at + 3 * page, page, kRw);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-1 rw-", "1-2 r--", "2-3 rw-", "3-4 rw-"}));
  });
}

TEST_F(Merging, MprotectSplitsAndJoinsAgain) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 6 * page, kRw);
    EXPECT_EQ(t.mprotect(at + 2 * page, 2 * page, kProtRead), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-2 rw-", "2-4 r--", "4-6 rw-"}));
    EXPECT_EQ(t.mprotect(at + 3 * page, 3 * page, kProtRead), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-2 rw-", "2-6 r--"}));
    EXPECT_EQ(t.mprotect(at + 2 * page, page, kRw), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-3 rw-", "3-6 r--"}));
    EXPECT_EQ(t.mprotect(at, 6 * page, kRw), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-6 rw-"}));
  });
}

TEST_F(Merging, AProtNoneReservationMadeWritableInPiecesIsOneVmaEachSide) {
  Machine m;  // as glibc's heaps grow
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 6 * page, kProtNone, kMapNoreserve);
    EXPECT_EQ(t.mprotect(at, 2 * page, kRw), Errno::kOk);
    EXPECT_EQ(t.mprotect(at + 2 * page, 2 * page, kRw), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-4 rw-", "4-6 ---"}));
  });
}

TEST_F(Merging, AdviceThatIsAFlagSplitsToo) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 6 * page, kRw);
    EXPECT_EQ(t.madvise(at + 2 * page, 2 * page, Madvise::kHugepage), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-2 rw-", "2-4 rw- hg", "4-6 rw-"}));
    EXPECT_EQ(t.madvise(at + 3 * page, 3 * page, Madvise::kNohugepage), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-2 rw-", "2-3 rw- hg", "3-6 rw- nh"}));
    EXPECT_EQ(t.madvise(at, 6 * page, Madvise::kHugepage), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-6 rw- hg"}));
    EXPECT_EQ(t.madvise(at + page, page, Madvise::kDontneed), Errno::kOk);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-6 rw- hg"})) << "DONTNEED is no flag";
  });
}

TEST_F(Merging, NeighboursFaultedSeparatelyShareTheirOwnerAndMerge) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 2 * page, kRw);
    map(t, at + 2 * page, 2 * page, kProtNone);
    EXPECT_EQ(t.write(at), Signal::kNone);
    EXPECT_EQ(t.mprotect(at + 2 * page, page, kRw), Errno::kOk)
        << "never faulted: joins the faulted one";
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-3 rw-", "3-4 ---"}));
  });
}

// A faulted part made to match an unfaulted neighbour.
void faulted_joins_unfaulted(Machine& m, const Maps& want) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(4 * page, kProtRead);
    EXPECT_TRUE(t.mmap_at(at + 2 * page, 2 * page, kRw, kAnon | kMapFixed).ok());
    EXPECT_EQ(t.write(at + 2 * page), Signal::kNone);
    EXPECT_EQ(t.mprotect(at, 2 * page, kRw), Errno::kOk);
    EXPECT_EQ(m.maps(at, 4), (Maps{"0-4 rw-"}))
        << "the unfaulted part joins the faulted one";
    EXPECT_EQ(t.munmap(at, 2 * page), Errno::kOk);
    EXPECT_TRUE(t.mmap_at(at, 2 * page, kProtRead, kAnon | kMapFixed).ok());
    EXPECT_EQ(t.mprotect(at + 2 * page, 2 * page, kProtRead), Errno::kOk);
    EXPECT_EQ(m.maps(at, 4), want) << "the faulted part, whose charge differs, stays";
  });
}

TEST_F(Merging, AChargedAndAnUnchargedVmaStayApart) {
  Machine m;
  faulted_joins_unfaulted(m, {"0-2 r--", "2-4 r--"});
}

// Both charged, the left one never faulted: only from 6.16 on it takes the right one over.
void join_leftwards(Machine& m, const Maps& want) {
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(4 * page, kRw);
    EXPECT_EQ(t.mprotect(at + 2 * page, 2 * page, kRw | kProtExec), Errno::kOk);
    EXPECT_EQ(t.write(at + 2 * page), Signal::kNone);
    EXPECT_EQ(m.maps(at, 4), (Maps{"0-2 rw-", "2-4 rwx"}));
    EXPECT_EQ(t.mprotect(at + 2 * page, 2 * page, kRw), Errno::kOk);
    EXPECT_EQ(m.maps(at, 4), want);
  });
}

TEST_F(Merging, AFaultedVmaDoesNotJoinAnUnfaultedOneBefore616) {
  Machine before("x86-4k", "6.12");
  join_leftwards(before, {"0-2 rw-", "2-4 rw-"});
  Machine after("x86-4k", "6.18");
  join_leftwards(after, {"0-4 rw-"});
}

TEST_F(Merging, MovedPagesKeepTheirOffsetAndStayApart) {
  Machine m;
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, page, kRw);
    map(t, at + 2 * page, page, kRw);
    map(t, at + 4 * page, page, kRw);
    EXPECT_EQ(t.write(at + 4 * page), Signal::kNone);
    EXPECT_EQ(t.mremap(at + 4 * page, page, page, kMremapMaymove | kMremapFixed, at + page)
                  .value(),
              at + page);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-1 rw-", "1-2 rw-", "2-3 rw-"}))
        << "faulted: offset kept";
    EXPECT_EQ(
        t.mremap(at + 2 * page, page, page, kMremapMaymove | kMremapFixed, at + 3 * page)
            .value(),
        at + 3 * page);
    map(t, at + 4 * page, page, kRw);
    EXPECT_EQ(m.maps(at, 6), (Maps{"0-1 rw-", "1-2 rw-", "3-5 rw-"}))
        << "never faulted: new offset";
  });
}

TEST_F(Merging, SplitsStopAtMaxMapCount) {
  Machine m("x86-4k", "6.1", [](KernelConfig& c) { c.max_map_count = 16; });
  with_area(m, [&](Thread& t, VirtAddr at, std::uint64_t page) {
    map(t, at, 6 * page, kRw);
    while (m.mm().vmas.size() < 15)
      t.mmap(page, m.mm().vmas.size() % 2 == 0 ? kProtRead : kProtNone);
    EXPECT_EQ(t.mprotect(at + 2 * page, page, kProtRead), Errno::kENOMEM)
        << "needs two more";
    EXPECT_EQ(m.mm().vmas.size(), 16U) << "one edge was split off";
    EXPECT_EQ(t.munmap(at, page), Errno::kOk) << "an edge needs none";
    EXPECT_EQ(t.munmap(at + 4 * page, page), Errno::kENOMEM) << "a hole needs one";
    EXPECT_EQ(t.madvise(at + 3 * page, page, Madvise::kHugepage), Errno::kEAGAIN);
    EXPECT_EQ(t.mmap_at({}, page, kProtExec, kAnon).value().v != 0, true)
        << "mmap may reach the limit + 1";
    EXPECT_EQ(t.mmap_at({}, page, kRw | kProtExec, kAnon).error(), Errno::kENOMEM);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
