// SPDX-License-Identifier: Apache-2.0
//
// What hugetlb and thp_pagesize decide at start-up, release by release, and the system
// calls that follow from it, as traced on the releases.
#include <gtest/gtest.h>

#include "allocator/ptmalloc/huge_pages.h"
#include "allocator/ptmalloc/layout.h"
#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

PlatformFacts x86(char mode) {
  PlatformFacts f;
  f.thp_size = 2 * kMiB;
  f.thp_mode = mode;
  f.hugetlb_default = 2 * kMiB;
  f.hugetlb_sizes = {2 * kMiB, 1024 * kMiB};
  return f;
}

HugePages with(std::uint64_t hugetlb, const PlatformFacts& facts,
               std::string_view release) {
  Settings s;
  s.hugetlb = hugetlb;
  return huge_pages(facts, *find_release(release), s);
}

TEST(HugetlbTunable, IsOffUnlessAskedFor) {
  for (const ReleaseProfile& r : releases()) {
    if (r.thp_by_default) continue;
    const HugePages h = huge_pages(x86('m'), r, {});
    EXPECT_EQ(h.thp_pagesize, 0U) << r.name;
    EXPECT_EQ(h.hp_pagesize, 0U) << r.name;
    EXPECT_EQ(h.heap_max, kHeapMax) << r.name;
  }
}

TEST(HugetlbTunable, OneDependsOnTheMode) {
  struct Case {
    const char* release;
    char mode;
    std::uint64_t size;
    bool advises;
  };
  const Case cases[] = {
      {"2.36", 'm', 2 * kMiB, true},
      {"2.36", 'a', 0, false},
      {"2.36", 'n', 0, false},
      {"2.43-x86", 'm', 2 * kMiB, true},
      {"2.43-x86", 'a', 2 * kMiB, false},
      {"2.43-x86", 'n', 0, false},
      {"2.44", 'a', 2 * kMiB, false},
      {"2.26", 'm', 0, false},
  };
  for (const Case& c : cases) {
    const HugePages h = with(1, x86(c.mode), c.release);
    EXPECT_EQ(h.thp_pagesize, c.size) << c.release << ' ' << c.mode;
    EXPECT_EQ(h.advises, c.advises) << c.release << ' ' << c.mode;
  }
}

TEST(HugetlbTunable, LargeThpsAreLeftAloneFrom244) {
  PlatformFacts arm64 = x86('m');
  arm64.page_size = 65536;
  arm64.thp_size = 512 * kMiB;
  EXPECT_EQ(with(1, arm64, "2.43-x86").thp_pagesize, 512 * kMiB);
  EXPECT_EQ(with(1, arm64, "2.43-x86").heap_unit, 65536U) << "larger than a heap";
  EXPECT_EQ(with(1, arm64, "2.44").thp_pagesize, 0U);
}

TEST(HugetlbTunable, AArch64SizesByDefaultFrom243) {
  const ReleaseProfile& r = *find_release("2.43-aarch64");
  EXPECT_EQ(huge_pages(x86('n'), r, {}).thp_pagesize, 2 * kMiB);
  EXPECT_FALSE(huge_pages(x86('n'), r, {}).advises);
  EXPECT_TRUE(huge_pages(x86('m'), r, {}).advises);
  EXPECT_EQ(with(0, x86('m'), "2.43-aarch64").thp_pagesize, 0U);
}

TEST(HugetlbTunable, ThreadHeapsGrowByThpsFrom243) {
  EXPECT_EQ(with(1, x86('m'), "2.36").heap_unit, 4096U);
  EXPECT_EQ(with(1, x86('m'), "2.43-x86").heap_unit, 2 * kMiB);
}

TEST(HugetlbTunable, TwoAndSizesNeedAPoolOfThatSize) {
  constexpr unsigned kTwoMiB = sys::kMapHugetlb | 21U << sys::kMapHugeShift;
  EXPECT_EQ(with(2, x86('n'), "2.36").hp_flags, kTwoMiB);
  EXPECT_EQ(with(2 * kMiB, x86('n'), "2.36").hp_flags, kTwoMiB);
  EXPECT_EQ(with(1024 * kMiB, x86('n'), "2.36").hp_pagesize, 1024 * kMiB);
  EXPECT_EQ(with(4 * kMiB, x86('n'), "2.36").hp_pagesize, 0U) << "the machine has none";
}

TEST(HugetlbTunable, HeapsAreFourHugePagesTo241) {
  EXPECT_EQ(with(2, x86('n'), "2.36").heap_max, 8 * kMiB);
  EXPECT_EQ(with(2, x86('n'), "2.36").heap_min, 2 * kMiB);
  EXPECT_EQ(with(2, x86('n'), "2.43-x86").heap_max, kHeapMax);
  EXPECT_TRUE(with(1024 * kMiB, x86('n'), "2.36").hp_arenas);
  EXPECT_FALSE(with(1024 * kMiB, x86('n'), "2.43-x86").hp_arenas)
      << "only for large blocks";
}

TEST(ThpPagesize, TakesASizeOrTheMachines) {
  const ReleaseProfile& rfc = *find_release("rfc-2021-thp_pagesize");
  const auto size = [&](std::uint64_t value) {
    Settings s;
    s.thp_pagesize = value;
    return huge_pages(x86('a'), rfc, s).thp_pagesize;
  };
  EXPECT_EQ(size(0), 0U);
  EXPECT_EQ(size(1), 2 * kMiB);
  EXPECT_EQ(size(4 * kMiB), 4 * kMiB);
  EXPECT_EQ(size(3 * kMiB), 0U) << "no power of two";
}

}  // namespace

namespace toy {
namespace {

Settings hugetlb(std::uint64_t value) {
  Settings s;
  s.hugetlb = value;
  return s;
}

// The calls of one name.
std::vector<SysCall> of(const SysLog& log, SysName name) {
  std::vector<SysCall> all;
  for (std::size_t i = 0; i < log.size(); ++i)
    if (log[i].name == name) all.push_back(log[i]);
  return all;
}

void fill(Bench& b, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += 100'000) b.malloc(100'000);
}

TEST(HugetlbOne, FirstGrowthEndsUnalignedTo242) {
  Bench b("2.36", x86('m'), hugetlb(1));
  fill(b, 5_M);
  const auto advice = of(b.log, SysName::kMadvise);
  ASSERT_GE(advice.size(), 2U);
  EXPECT_EQ(advice[0].addr, b.os.brk_start());
  EXPECT_EQ(advice[0].size, 2_M) << "from an unaligned base";
  EXPECT_EQ(advice[0].extra, static_cast<std::uint64_t>(sys::kMadvHugepage));
  // The second ends on a boundary, shorter than 2 MiB and so not advised; then all is
  // aligned.
  EXPECT_EQ(advice[1].addr % 2_M, 0U);
  EXPECT_EQ(advice[1].size, 2_M);
}

TEST(HugetlbOne, FirstGrowthIsUpToABoundaryFrom243) {
  Bench b("2.43-x86", x86('m'), hugetlb(1));
  b.malloc(24);
  EXPECT_EQ(b.calls(SysName::kMadvise), 0U) << "less than 2 MiB";
  fill(b, 5_M);
  const auto advice = of(b.log, SysName::kMadvise);
  ASSERT_GE(advice.size(), 2U);
  for (const SysCall& c : advice) {
    EXPECT_EQ(c.addr % 2_M, 0U);
    EXPECT_EQ(c.size, 2_M);
  }
}

TEST(HugetlbOne, LargeBlocksAreAdvisedWhole) {
  Bench b("2.36", x86('m'), hugetlb(1));
  b.malloc(24);
  b.log.clear();
  b.malloc(3_M);
  const auto advice = of(b.log, SysName::kMadvise);
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].size, 3_M + 4_K);
  b.malloc(1'990'000);
  EXPECT_EQ(of(b.log, SysName::kMadvise).size(), 1U) << "smaller than a huge page";
}

TEST(HugetlbOne, TheBreakGoesDownByWholeHugePages) {
  Bench b("2.36", x86('m'), hugetlb(1));
  std::vector<Addr> blocks;
  for (unsigned i = 0; i < 100; ++i) blocks.push_back(b.malloc(100'000));
  b.log.clear();
  for (; !blocks.empty(); blocks.pop_back()) b.free(blocks.back());
  const auto moves = of(b.log, SysName::kSbrk);
  ASSERT_FALSE(moves.empty());
  for (const SysCall& c : moves) EXPECT_EQ(c.size % 2_M, 0U);
}

// The first heap of a thread that takes 10 MiB.
SysLog& thread_heap(Bench& b, BenchThread& thread) {
  b.malloc(24);
  b.log.clear();
  for (unsigned i = 0; i < 104; ++i) b.heap.malloc(thread.p, 100'000);
  return b.log;
}

TEST(HugetlbOne, ThreadHeapsAreAdvisedByRelease) {
  const auto count = [](const char* release) {
    Bench b(release, x86('m'), hugetlb(1));
    BenchThread thread(b.os, b.log);
    return of(thread_heap(b, thread), SysName::kMadvise);
  };
  EXPECT_EQ(count("2.36").size(), 0U);
  ASSERT_EQ(count("2.43-x86").size(), 1U) << "only the first 2 MiB";
  EXPECT_EQ(count("2.43-x86")[0].size, 2_M);
  const auto each = count("2.44");
  ASSERT_EQ(each.size(), 5U);
  for (std::size_t i = 0; i < each.size(); ++i) {
    EXPECT_EQ(each[i].addr, each[0].addr);
    EXPECT_EQ(each[i].size, (i + 1) * 2_M);
  }
}

TEST(HugetlbOne, ThreadHeapsOpenByHugePagesFrom243) {
  Bench b("2.43-x86", x86('m'), hugetlb(1));
  BenchThread thread(b.os, b.log);
  for (const SysCall& c : of(thread_heap(b, thread), SysName::kMprotect))
    EXPECT_EQ(c.size, 2_M);
}

constexpr unsigned kTwoMiBPages = sys::kMapHugetlb | 21U << sys::kMapHugeShift;

TEST(HugetlbTwo, MappingsOfHugePagesStandInForTheBreak) {
  Bench b("2.36", x86('n'), hugetlb(2));
  b.os.hugetlb_pool = true;
  fill(b, 5_M);
  EXPECT_EQ(b.calls(SysName::kSbrk), 0U);
  const auto maps = of(b.log, SysName::kMmap);
  ASSERT_EQ(maps.size(), 3U);
  for (const SysCall& c : maps) {
    EXPECT_EQ(c.size, 2_M);
    EXPECT_EQ(c.flags & kTwoMiBPages, kTwoMiBPages);
  }
  EXPECT_FALSE(b.heap.malloc_trim(b.p, 0) && b.calls(SysName::kSbrk) != 0);
}

TEST(HugetlbTwo, WithAnEmptyPoolEachGrowthFailsFirst) {
  Bench b("2.39", x86('n'), hugetlb(2));
  fill(b, 2_M);
  const auto maps = of(b.log, SysName::kMmap);
  ASSERT_GE(maps.size(), 4U);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    EXPECT_EQ(maps[i].error, i % 2 == 0 ? sys::kENOMEM : 0);
    EXPECT_EQ(maps[i].size, i % 2 == 0 ? 2_M : 1_M);
  }
}

TEST(HugetlbTwo, BlocksBetweenThresholdAndPageByRelease) {
  const auto pages = [](const char* release) {
    Bench b(release, x86('n'), hugetlb(2));
    b.os.hugetlb_pool = true;
    b.malloc(1'000'000);  // the first region has no room for the second
    b.log.clear();
    b.malloc(1'990'000);
    return of(b.log, SysName::kMmap);
  };
  ASSERT_EQ(pages("2.36").size(), 1U);
  EXPECT_EQ(pages("2.36")[0].flags & sys::kMapHugetlb, 0U) << "a mapping of small pages";
  ASSERT_EQ(pages("2.39").size(), 1U);
  EXPECT_EQ(pages("2.39")[0].size, 4_M) << "one more region of huge pages";
}

TEST(HugetlbTwo, AShrunkBlockIsUnmappedWholeFrom243) {
  const auto unmapped = [](const char* release) {
    Bench b(release, x86('n'), hugetlb(2));
    b.os.hugetlb_pool = true;
    const Addr block = b.heap.realloc(b.p, b.malloc(9_M), 3_M);
    b.log.clear();
    b.free(block);
    return of(b.log, SysName::kMunmap).at(0).size;
  };
  EXPECT_EQ(unmapped("2.36"), 3_M + 4_K) << "EINVAL from Linux: leaked";
  EXPECT_EQ(unmapped("2.43-x86"), 4_M);
}

TEST(HugetlbTwo, HeapsAreCutOutOfTwiceTheirSizeIn8MiBUnits) {
  Bench b("2.36", x86('n'), hugetlb(2));
  b.os.hugetlb_pool = true;
  b.malloc(24);
  BenchThread thread(b.os, b.log);
  b.log.clear();
  b.heap.malloc(thread.p, 24);
  const auto maps = of(b.log, SysName::kMmap);
  ASSERT_EQ(maps.size(), 1U);
  EXPECT_EQ(maps[0].size, 16_M);
  EXPECT_EQ(maps[0].flags & sys::kMapNoreserve, 0U);
  EXPECT_EQ(of(b.log, SysName::kMprotect).at(0).size, 2_M);
}

}  // namespace
}  // namespace toy
}  // namespace faultline::alloc
