// SPDX-License-Identifier: Apache-2.0
//
// Where mmap puts mappings.  The addresses of the first test are those that real kernels
// gave a static program under norandmaps (6.1 on five machines).
#include <gtest/gtest.h>

#include <ostream>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

struct RecordedLayout {
  const char* profile;
  std::uint64_t at_64k, at_1m, at_3g, at_600m;  // mapped in this order, nothing unmapped
};
std::ostream& operator<<(std::ostream& out, const RecordedLayout& r) {
  return out << r.profile;
}

class RecordedPlaces : public ::testing::TestWithParam<RecordedLayout> {};

TEST_P(RecordedPlaces, AreWhereTheModelPutsThem) {
  const RecordedLayout want = GetParam();
  Machine m(want.profile);
  m.run([&](Task& task) {
    Thread t(task, m);
    constexpr unsigned kFlags = kAnon | kMapNoreserve;
    EXPECT_EQ(t.mmap(64 * kKiB, kRw, kFlags).v, want.at_64k);
    EXPECT_EQ(t.mmap(kMiB, kRw, kFlags).v, want.at_1m);
    EXPECT_EQ(t.mmap(3 * kGiB, kRw, kFlags).v, want.at_3g);
    EXPECT_EQ(t.mmap(600 * kMiB, kRw, kFlags).v, want.at_600m);
    const Vma* const all = m.mm().vma_at({want.at_600m});
    EXPECT_EQ(all->bytes(), 64 * kKiB + kMiB + 3 * kGiB + 600 * kMiB) << "they are one VMA";
  });
}

INSTANTIATE_TEST_SUITE_P(
    Real, RecordedPlaces,
    ::testing::Values(RecordedLayout{"arm64-64k", 0xfffff7fc0000, 0xfffff7ec0000,
                                     0xffff37ec0000, 0xffff126c0000},
                      RecordedLayout{"arm64-4k", 0xfffff7fed000, 0xfffff7eed000,
                                     0xffff37eed000, 0xffff126ed000},
                      RecordedLayout{"power-radix-64k", 0x7ffff7fc0000, 0x7ffff7ec0000,
                                     0x7fff37ec0000, 0x7fff126c0000},
                      RecordedLayout{"power-hash-64k", 0x7ffff7fc0000, 0x7ffff7ec0000,
                                     0x7fff37ec0000, 0x7fff126c0000},
                      RecordedLayout{"x86-4k", 0x7ffff7fe9000, 0x7ffff7ee9000,
                                     0x7fff37ee9000, 0x7fff126e9000}),
    [](const auto& test) {
      std::string name = test.param.profile;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(Placement, TakesTheHighestHoleThatIsLargeEnough) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr all = t.mmap(16 * kMiB);
    t.munmap(all + kMiB, kMiB);
    t.munmap(all + 4 * kMiB, 2 * kMiB);
    EXPECT_EQ(t.mmap(2 * kMiB), all + 4 * kMiB);
    EXPECT_EQ(t.mmap(kMiB), all + kMiB);
    EXPECT_EQ(t.mmap(kMiB), all - kMiB);
  });
}

TEST(Placement, HonoursAHintThatIsFreeAndRoundsItDown) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr hint{0x10000000};
    EXPECT_EQ(t.mmap_at(hint + 5, 3 * m.page(), kRw, kAnon).value(), hint);
    EXPECT_NE(t.mmap_at(hint + m.page(), m.page(), kRw, kAnon).value(), hint + m.page());
    EXPECT_EQ(t.mmap_at({1 << 12}, m.page(), kRw, kAnon).value().v, 65536U)
        << "mmap_min_addr";
  });
}

TEST(Placement, FixedReplacesAndNoreplaceRefuses) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(8 * page);
    EXPECT_EQ(t.mmap_at(at + 2 * page, 2 * page, kProtRead, kAnon | kMapFixed).value(),
              at + 2 * page);
    EXPECT_EQ(m.maps(at, 8), (std::vector<std::string>{"0-2 rw-", "2-4 r--", "4-8 rw-"}));
    EXPECT_EQ(t.mmap_at(at + 7 * page, 2 * page, kRw, kAnon | kMapFixedNoreplace).error(),
              Errno::kEEXIST);
    EXPECT_EQ(t.mmap_at(at - page, page, kRw, kAnon | kMapFixedNoreplace).value(),
              at - page);
  });
}

TEST(Placement, KeepsAGapBelowTheStack) {
  Machine m("x86-4k", "6.1");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr stack = m.mm().vmas.last()->start;
    const std::uint64_t gap = 256 * m.page();
    EXPECT_NE(t.mmap_at(stack - gap, m.page(), kRw, kAnon).value(), stack - gap);
    EXPECT_EQ(t.mmap_at(stack - gap - m.page(), m.page(), kRw, kAnon).value(),
              stack - gap - m.page());
    EXPECT_EQ(t.mmap_at(stack - gap, m.page(), kRw, kAnon | kMapFixed).value(),
              stack - gap);
  });
}

struct Aligned {
  ThpMmapAlign rule;
  std::uint64_t length,
      below_top;  // where it must lie: so many bytes below what is mapped already
};

// The area below a mapping that ends at 0 mod 2 MiB, minus 64 KiB.
TEST(Placement, AlignsForHugePagesByTheRuleOfTheVersion) {
  constexpr auto kAll = ThpMmapAlign::kAtLeastPmd;
  constexpr auto kMultiple = ThpMmapAlign::kMultipleOfPmd;
  const Aligned cases[] = {
      {ThpMmapAlign::kNo, 4 * kMiB, 4 * kMiB + 64 * kKiB},
      {kAll, kMiB, kMiB + 64 * kKiB},
      {kAll, 3 * kMiB, 4 * kMiB},  // odd size: a gap stays above
      {kAll, 4 * kMiB, 6 * kMiB},
      {kMultiple, 3 * kMiB, 3 * kMiB + 64 * kKiB},
      {kMultiple, 4 * kMiB, 6 * kMiB},
  };
  for (const Aligned& c : cases) {
    Machine m("x86-4k", "6.1",
              [&](KernelConfig& config) { config.thp_mmap_align = c.rule; });
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr top{0x7ffff7e00000};
      const VirtAddr taken = top - 64 * kKiB;
      EXPECT_TRUE(
          t.mmap_at(taken, 0x7ffff7ff9000 - taken.v, kProtNone, kAnon | kMapFixed).ok());
      EXPECT_EQ(top - t.mmap(c.length), c.below_top) << "length " << c.length;
    });
  }
}

TEST(Placement, AHugeMultipleLiesFlushWithWhatIsAbove) {
  Machine m("x86-4k", "6.12");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr first = t.mmap(4 * kMiB);
    EXPECT_EQ(first.v % (2 * kMiB), 0U);
    EXPECT_EQ(t.mmap(2 * kMiB), first - 2 * kMiB);
  });
}

TEST(Placement, GoesBottomUpWhenBelowMmapBaseIsFull) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t task_size = m.profile().layout.task_size;
    const VirtAddr low{m.profile().layout.mmap_min_addr};
    // All that is free below mmap_base, but for a page.
    std::vector<Range> holes;
    VirtAddr at = low;
    for (const Vma& vma : m.mm().vmas) {
      if (vma.start > at && vma.start < m.mm().mmap_base) holes.push_back({at, vma.start});
      at = vma.end;
    }
    for (const Range& hole : holes)
      EXPECT_TRUE(t.mmap_at(hole.start, hole.bytes(), kProtNone, kAnon | kMapFixed).ok());
    const VirtAddr place = t.mmap(m.page());
    EXPECT_GE(place, m.mm().mmap_base);
    EXPECT_LT(place.v, task_size);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
