// SPDX-License-Identifier: Apache-2.0
//
// What the calls answer to wrong arguments, in the kernel's order of checks.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kTaskSize = 0x7ffffffff000;
constexpr std::uint64_t kWraps = ~std::uint64_t{0} - 100;  // rounds up to 0

// A four-page mapping at 0 of the test's own scale, pages 2 and 3 of six unmapped: "rw hole
// rw".
struct Area {
  explicit Area(Thread& t) : base(t.mmap(6 * kPage)) {
    EXPECT_EQ(t.munmap(page(2), 2 * kPage), Errno::kOk);
  }
  [[nodiscard]] VirtAddr page(std::uint64_t n) const { return base + n * kPage; }
  VirtAddr base;
};

template <typename Body>
void with_area(Body body) {
  Machine m("x86-4k", "6.1");
  m.run([&](Task& task) {
    Thread t(task, m);
    const Area area(t);
    body(t, area, m);
  });
}

TEST(Errno, Mmap) {
  with_area([](Thread& t, const Area& a, Machine&) {
    const auto error = [&](VirtAddr at, std::uint64_t n, unsigned prot, unsigned flags) {
      return t.mmap_at(at, n, prot, flags).error();
    };
    EXPECT_EQ(error({}, 0, kRw, kAnon), Errno::kEINVAL);
    EXPECT_EQ(error({1}, 0, kRw, kAnon | kMapFixed), Errno::kEINVAL) << "length first";
    EXPECT_EQ(error({}, kWraps, kRw, kAnon), Errno::kENOMEM);
    EXPECT_EQ(error({}, kTaskSize + kPage, kRw, kAnon), Errno::kENOMEM);
    EXPECT_EQ(error(a.page(0) + 1, kPage, kRw, kAnon | kMapFixed), Errno::kEINVAL);
    EXPECT_EQ(error({kTaskSize}, kPage, kRw, kAnon | kMapFixed), Errno::kENOMEM);
    EXPECT_EQ(error({kTaskSize + 1}, kPage, kRw, kAnon | kMapFixed), Errno::kENOMEM)
        << "range first";
    EXPECT_EQ(error({0}, kPage, kRw, kAnon | kMapFixed), Errno::kEPERM)
        << "below mmap_min_addr";
    EXPECT_EQ(error({}, kPage, kRw, kMapAnonymous), Errno::kEINVAL)
        << "neither shared nor private";
    EXPECT_EQ(error(a.page(1), 2 * kPage, kRw, kAnon | kMapFixedNoreplace), Errno::kEEXIST);
    EXPECT_EQ(error(a.page(2), 2 * kPage, kRw, kAnon | kMapFixedNoreplace), Errno::kOk);
    EXPECT_EQ(error({}, kPage, kRw, kAnon | kMapHugetlb | 20U << kMapHugeShift),
              Errno::kEINVAL)
        << "x86 has no 1 MiB pages";
  });
}

TEST(Errno, Munmap) {
  with_area([](Thread& t, const Area& a, Machine&) {
    EXPECT_EQ(t.munmap(a.page(0) + 1, kPage), Errno::kEINVAL);
    EXPECT_EQ(t.munmap(a.page(0), 0), Errno::kEINVAL);
    EXPECT_EQ(t.munmap(a.page(0), kWraps), Errno::kEINVAL);
    EXPECT_EQ(t.munmap({kTaskSize}, kPage), Errno::kEINVAL);
    EXPECT_EQ(t.munmap({kTaskSize - kPage}, 2 * kPage), Errno::kEINVAL);
    EXPECT_EQ(t.munmap(a.page(2), 2 * kPage), Errno::kOk) << "nothing mapped is success";
    EXPECT_EQ(t.munmap(a.page(1), 1), Errno::kOk) << "length is rounded up";
    EXPECT_EQ(t.munmap(a.page(0), 6 * kPage), Errno::kOk) << "holes don't matter";
  });
}

TEST(Errno, Mprotect) {
  with_area([](Thread& t, const Area& a, Machine& m) {
    EXPECT_EQ(t.mprotect(a.page(0) + 1, kPage, kProtRead), Errno::kEINVAL);
    EXPECT_EQ(t.mprotect(a.page(0), 0, kProtRead), Errno::kOk);
    EXPECT_EQ(t.mprotect(a.page(0) + 1, 0, kProtRead), Errno::kEINVAL)
        << "alignment before length";
    EXPECT_EQ(t.mprotect(a.page(0), kWraps, kProtRead), Errno::kENOMEM);
    EXPECT_EQ(t.mprotect(a.page(0), kWraps, 0x40), Errno::kENOMEM) << "range before prot";
    EXPECT_EQ(t.mprotect(a.page(0), kPage, 0x40), Errno::kEINVAL);
    EXPECT_EQ(t.mprotect(a.page(2), 2 * kPage, kProtRead), Errno::kENOMEM);
    EXPECT_EQ(t.mprotect(a.page(0), 6 * kPage, kProtRead), Errno::kENOMEM) << "a hole ...";
    EXPECT_EQ(m.maps(a.base, 6), (std::vector<std::string>{"0-2 r--", "4-6 rw-"}))
        << "... after what lies before it was changed";
    EXPECT_EQ(t.mprotect(m.mm().vmas.last()->prev()->prev()->start, kPage, kProtWrite),
              Errno::kEACCES)
        << "vvar can't become writable";
  });
}

TEST(Errno, Madvise) {
  with_area([](Thread& t, const Area& a, Machine& m) {
    constexpr auto kUnknown = static_cast<Madvise>(77);
    EXPECT_EQ(t.madvise(a.page(0) + 1, 0, kUnknown), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(a.page(0), 0, kUnknown), Errno::kEINVAL) << "advice before length";
    EXPECT_EQ(t.madvise(a.page(0) + 1, kPage, Madvise::kDontneed), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(a.page(0), kWraps, Madvise::kDontneed), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(a.page(0), ~std::uint64_t{0} - kPage, Madvise::kDontneed),
              Errno::kEINVAL)
        << "wraps";
    EXPECT_EQ(t.madvise(a.page(0), 0, Madvise::kDontneed), Errno::kOk);
    EXPECT_EQ(t.madvise(a.page(2), 2 * kPage, Madvise::kDontneed), Errno::kENOMEM);
    EXPECT_EQ(t.madvise(a.page(0), 6 * kPage, Madvise::kHugepage), Errno::kENOMEM)
        << "a hole ...";
    EXPECT_EQ(m.maps(a.base, 6), (std::vector<std::string>{"0-2 rw- hg", "4-6 rw- hg"}))
        << "... doesn't keep it from the rest";
    EXPECT_EQ(t.madvise({kTaskSize}, kPage, Madvise::kDontneed), Errno::kENOMEM)
        << "nothing above";
    const VirtAddr vvar = m.mm().vmas.last()->prev()->prev()->start;
    EXPECT_EQ(t.madvise(vvar, kPage, Madvise::kDontneed), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(vvar, kPage, Madvise::kDofork), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(vvar, kPage, Madvise::kDodump), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(vvar, kPage, Madvise::kWipeonfork), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(a.page(0), kPage, Madvise::kRemove), Errno::kEINVAL);
  });
}

TEST(Errno, MadviseKnowsWhatItsVersionKnows) {
  const auto answer = [](std::string_view preset, Madvise advice) {
    Machine m("x86-4k", preset);
    Errno result{};
    m.run([&](Task& task) {
      Thread t(task, m);
      result = t.madvise(t.mmap(kPage), kPage, advice);
    });
    return result;
  };
  EXPECT_EQ(answer("3.9", Madvise::kWipeonfork), Errno::kEINVAL);
  EXPECT_EQ(answer("4.15", Madvise::kWipeonfork), Errno::kOk);
  EXPECT_EQ(answer("5.14", Madvise::kDontneedLocked), Errno::kEINVAL);
  EXPECT_EQ(answer("6.1", Madvise::kDontneedLocked), Errno::kOk);
}

TEST(Errno, DontneedZapsTheMappedPartsAndReportsTheHole) {
  with_area([](Thread& t, const Area& a, Machine& m) {
    for (const int n : {0, 1, 4, 5})
      EXPECT_EQ(t.write(a.page(static_cast<std::uint64_t>(n))), Signal::kNone);
    EXPECT_EQ(t.madvise(a.page(1), 4 * kPage, Madvise::kDontneed), Errno::kENOMEM);
    EXPECT_TRUE(m.mm().pages().accessible(a.page(0), Access::kRead));
    EXPECT_FALSE(m.mm().pages().accessible(a.page(1), Access::kRead));
    EXPECT_FALSE(m.mm().pages().accessible(a.page(4), Access::kRead));
    EXPECT_TRUE(m.mm().pages().accessible(a.page(5), Access::kRead));
  });
}

TEST(Errno, Mremap) {
  with_area([](Thread& t, const Area& a, Machine& m) {
    const auto error = [&](VirtAddr at, std::uint64_t from, std::uint64_t to,
                           unsigned flags, VirtAddr where = {}) {
      return t.mremap(at, from, to, flags, where).error();
    };
    constexpr unsigned kFixed = kMremapMaymove | kMremapFixed;
    EXPECT_EQ(error(a.page(0), kPage, kPage, 8), Errno::kEINVAL);
    EXPECT_EQ(error(a.page(0), kPage, kPage, kMremapFixed, a.page(2)), Errno::kEINVAL)
        << "FIXED needs MAYMOVE";
    EXPECT_EQ(error(a.page(0), kPage, 2 * kPage, kMremapMaymove | kMremapDontunmap),
              Errno::kEINVAL);
    EXPECT_EQ(error(a.page(0) + 1, kPage, kPage, 0), Errno::kEINVAL);
    EXPECT_EQ(error(a.page(0), kPage, 0, 0), Errno::kEINVAL);
    EXPECT_EQ(error(a.page(2), kPage, kPage, 0), Errno::kEFAULT)
        << "a hole, even to do nothing";
    EXPECT_EQ(error(a.page(0), 3 * kPage, 4 * kPage, kMremapMaymove), Errno::kEFAULT)
        << "beyond its VMA";
    EXPECT_EQ(error(a.page(0), 0, kPage, kMremapMaymove), Errno::kEINVAL)
        << "private can't be doubled";
    EXPECT_EQ(error(a.page(4), 2 * kPage, 4 * kPage, 0), Errno::kENOMEM)
        << "vdso is in the way, may not move";
    EXPECT_EQ(error(a.page(0), kPage, kPage, kFixed, a.page(0)), Errno::kEINVAL)
        << "onto itself";
    EXPECT_EQ(error(a.page(0), kPage, kPage, kFixed, a.page(2) + 1), Errno::kEINVAL);
    EXPECT_EQ(error(a.page(0), kPage, kPage, kFixed, {kTaskSize}), Errno::kEINVAL);
    const VirtAddr vdso = m.mm().vmas.last()->prev()->start;
    EXPECT_EQ(error(vdso, 2 * kPage, 3 * kPage, kMremapMaymove), Errno::kEFAULT)
        << "DONTEXPAND";
  });
}

TEST(Errno, MremapLooksForTheVmaBeforeItShrinksOnlySince516) {
  const auto answer = [](std::string_view preset) {
    Machine m("x86-4k", preset);
    Errno result{};
    m.run([&](Task& task) {
      Thread t(task, m);
      const Area a(t);
      result = t.mremap(a.page(2), 2 * kPage, kPage, 0).error();
    });
    return result;
  };
  EXPECT_EQ(answer("5.14"), Errno::kOk);
  EXPECT_EQ(answer("6.1"), Errno::kEFAULT);
}

TEST(Errno, BrkAnswersTheOldBreakInsteadOfAnErrno) {
  with_area([](Thread& t, const Area&, Machine& m) {
    const VirtAddr old = t.brk({});
    EXPECT_EQ(old.v, m.profile().layout.brk);
    EXPECT_EQ(t.brk(old + 5), old + 5);
    EXPECT_EQ(t.brk(old + 3 * kPage), old + 3 * kPage);
    EXPECT_EQ(t.brk(m.mm().start_brk - 1), old + 3 * kPage) << "below the program";
    EXPECT_EQ(t.brk(VirtAddr{kTaskSize}), old + 3 * kPage) << "mappings in the way";
    const VirtAddr wall =
        t.mmap_at(old + 8 * kPage, kPage, kProtNone, kAnon | kMapFixed).value();
    EXPECT_EQ(t.brk(wall), old + 3 * kPage) << "one page stays free below the next mapping";
    EXPECT_EQ(t.brk(wall - kPage), wall - kPage);
    EXPECT_EQ(t.brk(old), old);
    EXPECT_EQ(m.mm().vma_at(old), nullptr);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
