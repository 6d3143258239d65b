// SPDX-License-Identifier: Apache-2.0
//
// Counts and addresses that were measured on real glibc releases (x86-64, strace and
// pagemap).
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "allocator/ptmalloc/check.h"
#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

PlatformFacts machine(std::uint64_t page_size, unsigned cpus = 1) {
  PlatformFacts facts;
  facts.page_size = page_size;
  facts.cpus = cpus;
  return facts;
}

TEST(Layout, StructSizes) {
  const auto bytes = [](const char* release) {
    return ArenaLayout(*find_release(release)).bytes;
  };
  EXPECT_EQ(bytes("2.36"), 2200u);
  EXPECT_EQ(bytes("2.43-x86"), 2112u);
  EXPECT_EQ(find_release("2.26")->tcache_bytes(), 576u);
  EXPECT_EQ(find_release("2.36")->tcache_bytes(), 640u);
  EXPECT_EQ(find_release("2.43-x86")->tcache_bytes(), 760u);
  for (const ReleaseProfile& r : releases()) {
    EXPECT_LE(ArenaLayout(r).bytes, r.malloc_state_bytes) << r.name;
  }
}

TEST(Layout, BinsByTheirBoundaries) {
  EXPECT_EQ(bin_index(32), 2u);
  EXPECT_EQ(bin_index(1008), 63u);
  EXPECT_EQ(bin_index(1024), 64u);
  EXPECT_EQ(bin_index(48 * 64 + 63), 96u);
  EXPECT_EQ(bin_index(49 * 64), 97u);
  EXPECT_EQ(bin_index(std::uint64_t{1} << 40), 126u);
}

TEST(MainArena, FirstMallocMovesTheBreakBy33Pages) {
  Bench b("2.36");
  const Addr first = b.malloc(24);
  ASSERT_EQ(b.calls(SysName::kSbrk), 1u);
  EXPECT_EQ(b.log[1].size, 0x21000u);
  EXPECT_EQ(first, b.os.brk_start() + 0x2a0);  // behind the thread's cache
}

TEST(MainArena, FirstMallocOf243ComesBeforeAnyCache) {
  Bench b("2.43-x86");
  EXPECT_EQ(b.malloc(24), b.os.brk_start() + 0x10);
}

// The chunk of the cache, made by the first free: 784 bytes in 2.43, 768 in 2.44.
TEST(MainArena, TheFirstFreeMakesTheCacheSince243) {
  for (const auto& [release, chunk] : {std::pair{"2.43-x86", 0x310u}, {"2.44", 0x300u}}) {
    Bench b(release);
    b.free(b.malloc(24));
    EXPECT_EQ(b.malloc(2000), b.os.brk_start() + 0x20 + chunk + 0x10) << release;
  }
}

TEST(MainArena, FirstMallocOn64KPagesMovesTheBreakBy192K) {
  Bench b("2.36", machine(64_K));
  b.malloc(24);
  EXPECT_EQ(b.log[1].size, 0x30000u);
}

TEST(MainArena, AForeignSbrkCostsASecondCallAndFencesOldTop) {
  Bench b("2.36");
  b.malloc(24);
  const Addr old_break = b.p.sbrk(0).value;
  b.p.sbrk(5000);
  b.log.clear();
  const Addr large = b.malloc(120000);
  const Addr small = b.malloc(1000);
  EXPECT_LT(large, old_break);  // old top had room for it
  b.malloc(120000);
  ASSERT_EQ(b.calls(SysName::kSbrk), 2u);
  EXPECT_EQ((old_break + 5000 + b.log[0].size + b.log[1].size) % 4096, 0u);
  EXPECT_EQ(b.log[0].size % 4096, 0u);
  EXPECT_LT(small, old_break);
  EXPECT_EQ(HeapCheck(b.p, b.heap).run(), "");
}

TEST(MainArena, WithoutABreakAMappingStandsInForIt) {
  for (const char* release : {"2.26", "2.36"}) {
    const bool swapped = find_release(release)->mmap_fallback == MmapFallback::kSwapped;
    Bench b(release);
    b.os.largest_brk = 0;
    b.malloc(24);
    ASSERT_EQ(b.calls(SysName::kMmap), 1u);
    EXPECT_EQ(b.log[b.log.size() - 1].size, 1_M);
    for (int i = 0; i < 12; ++i) b.malloc(100'000);
    ASSERT_EQ(b.calls(SysName::kMmap), 2u) << release;
    EXPECT_EQ(b.log[b.log.size() - 1].size, swapped ? 233472u : 1_M) << release;
  }
}

TEST(MainArena, OneFaultForEachChunkBoundary) {
  Bench b("2.36");
  b.malloc(24);
  const std::uint64_t before = b.os.faults;
  for (int i = 0; i < 20; ++i) b.malloc(100'000);
  EXPECT_GE(b.os.faults - before, 19u);
  EXPECT_LE(b.os.faults - before, 20u);
}

TEST(Mmap, ThresholdIsComparedWithTheChunkSize) {
  Bench b("2.36");
  b.malloc(24);
  b.malloc(131047);
  EXPECT_EQ(b.calls(SysName::kMmap), 0u);
  b.malloc(131056);
  ASSERT_EQ(b.calls(SysName::kMmap), 1u);
  EXPECT_EQ(b.log[b.log.size() - 1].size, 135168u);
}

TEST(Mmap, AFreshBlockFaultsOnePageAnAlignedOneTwo) {
  Bench b("2.36");
  b.malloc(24);
  std::uint64_t before = b.os.faults;
  b.malloc(3_M);
  EXPECT_EQ(b.os.faults - before, 1u);
  before = b.os.faults;
  const Addr aligned = b.heap.memalign(b.p, 1_M, 3_M);
  EXPECT_EQ(aligned % 1_M, 0u);
  EXPECT_EQ(b.os.faults - before, 2u);
}

TEST(Mmap, CallocOfAFreshBlockTouchesNothingOfIt) {
  Bench b("2.36");
  b.malloc(24);
  const std::uint64_t before = b.os.faults;
  b.heap.calloc(b.p, 3, 1_M);
  EXPECT_EQ(b.os.faults - before, 1u);
}

TEST(Mmap, TheSecondEqualBlockComesFromTheHeapAndTheThirdIsFree) {
  Bench b("2.36");
  b.malloc(24);
  std::vector<std::size_t> calls;
  for (int cycle = 0; cycle < 3; ++cycle) {
    b.log.clear();
    b.free(b.malloc(1_M));
    calls.push_back(b.log.size());
  }
  EXPECT_EQ(calls, (std::vector<std::size_t>{2, 1, 0}));
}

TEST(Mmap, FreeingABlockRaisesTheThresholdsToItsMapping) {
  const auto thresholds = [](const char* release, std::uint64_t page) {
    Bench b(release, machine(page));
    b.free(b.malloc(16_M));
    EXPECT_EQ(b.shared(Shared::kTrimThreshold), 2 * b.shared(Shared::kMmapThreshold));
    return b.shared(Shared::kMmapThreshold);
  };
  EXPECT_EQ(thresholds("2.36", 4_K), 16'781'312u);
  EXPECT_EQ(thresholds("2.36", 16_K), 16'793'600u);
  EXPECT_EQ(thresholds("2.36", 64_K), 16'842'752u);
  EXPECT_EQ(thresholds("2.43-x86", 4_K), 16'781'312u - 16);
}

TEST(Mmap, ABlockAbove32MiBTeachesNothing) {
  Bench b("2.36");
  b.free(b.malloc(33_M));
  EXPECT_EQ(b.shared(Shared::kMmapThreshold), 128_K);
}

TEST(Mmap, SettingAThresholdTurnsTheRuleOff) {
  Bench b("2.36");
  EXPECT_EQ(b.heap.mallopt(b.p, Param::kMmapThreshold, 64 << 10), 1);
  b.free(b.malloc(16_M));
  EXPECT_EQ(b.shared(Shared::kMmapThreshold), 64_K);
}

TEST(Realloc, AMappedBlockIsMovedByTheKernel) {
  Bench b("2.36");
  b.malloc(24);
  Addr mem = b.malloc(1_M);
  b.p.store<std::uint64_t>(mem, 77);
  b.p.store<std::uint64_t>(mem + 1_M - 8, 78);
  b.malloc(1_M);  // below it, so that it can't grow downwards
  b.log.clear();
  mem = b.heap.realloc(b.p, mem, 5_M);
  EXPECT_EQ(b.p.load<std::uint64_t>(mem), 77u);
  EXPECT_EQ(b.p.load<std::uint64_t>(mem + 1_M - 8), 78u);
  mem = b.heap.realloc(b.p, mem, 20_K);
  EXPECT_EQ(b.p.load<std::uint64_t>(mem), 77u);
  EXPECT_EQ(b.calls(SysName::kMremap), 2u);
  EXPECT_EQ(b.log.size(), 2u);
  EXPECT_EQ(b.heap.realloc(b.p, mem, 20_K + 100), mem);  // the same pages: no call
  EXPECT_EQ(b.log.size(), 2u);
}

TEST(Realloc, ASmallerSizeSplitsIfTheRestIsAChunk) {
  Bench b("2.36");
  const Addr mem = b.malloc(4000);
  b.malloc(24);
  EXPECT_EQ(b.heap.realloc(b.p, mem, 2000), mem);
  EXPECT_EQ(b.heap.malloc_usable_size(b.p, mem), 2008u);
  EXPECT_EQ(b.heap.realloc(b.p, mem, 1990), mem);
  EXPECT_EQ(b.heap.malloc_usable_size(b.p, mem), 2008u);
}

// 2.38 and later keep a mapped block that fits with less than 16 bytes to spare; before,
// the request rounded up decides, and may need a page more.
TEST(Realloc, ATightFitIsKeptSince238) {
  for (const char* release : {"2.36", "2.39"}) {
    Bench b(release);
    const Addr mem = b.malloc(1_M);
    const std::uint64_t usable = b.heap.malloc_usable_size(b.p, mem);
    b.log.clear();
    b.heap.realloc(b.p, mem, usable - 2);
    EXPECT_EQ(b.calls(SysName::kMremap), std::string(release) == "2.36" ? 1u : 0u);
  }
}

// Blocks of 8 KiB doubling to `max`, then `max` until `total`, all written, freed in order
// or in reverse: faults and brk calls of a cycle in steady state.
struct Cycle {
  std::uint64_t faults, brks;
  bool operator==(const Cycle&) const = default;
};
std::ostream& operator<<(std::ostream& os, const Cycle& c) {
  return os << c.faults << " faults, " << c.brks << " brks";
}
Cycle grow_and_trim(std::uint64_t total, std::uint64_t max, bool reverse,
                    std::uint64_t top_pad = 0) {
  Settings settings;
  if (top_pad != 0) {
    settings.top_pad = top_pad;
    settings.dynamic_threshold = false;
  }
  Bench b("2.36", {}, settings);
  b.malloc(24);
  std::uint64_t faults = 0;
  for (int cycle = 0; cycle < 5; ++cycle) {
    faults = b.os.faults;
    b.log.clear();
    std::vector<Addr> blocks;
    std::uint64_t size = 8_K;
    for (std::uint64_t sum = 0; sum + size <= total;
         sum += size, size = std::min(2 * size, max)) {
      blocks.push_back(b.malloc(size));
      b.p.touch(blocks.back(), size, Touch::kWrite);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i)
      b.free(reverse ? blocks[blocks.size() - 1 - i] : blocks[i]);
  }
  return {b.os.faults - faults, b.calls(SysName::kSbrk)};
}

TEST(Trim, CyclesOfGrowthAsMeasured) {
  EXPECT_EQ(grow_and_trim(1_M, 64_K, true), (Cycle{222, 22}));
  EXPECT_EQ(grow_and_trim(1_M, 64_K, false).brks, 6u);
  EXPECT_EQ(grow_and_trim(4_M, 64_K, true), (Cycle{990, 86}));
  EXPECT_EQ(grow_and_trim(1_M, 64_K, true, 64_M).brks, 0u);
  EXPECT_EQ(grow_and_trim(64_M, 8_M, true), (Cycle{16'336, 17}));
}

TEST(Trim, MallocTrimGivesBackWholePagesOfHolesAndRemembersNothing) {
  Bench b("2.36");
  std::vector<Addr> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(b.malloc(4000));
  for (std::size_t i = 0; i + 8 <= blocks.size(); i += 8)  // holes of seven
    for (std::size_t j = 0; j < 7; ++j) b.free(blocks[i + j]);
  b.log.clear();
  EXPECT_TRUE(b.heap.malloc_trim(b.p, 0));
  const std::size_t calls = b.calls(SysName::kMadvise);
  EXPECT_EQ(calls, 50u);
  for (std::size_t i = 0; i < calls; ++i) {
    EXPECT_GE(b.log[i].size, 20_K);
    EXPECT_LE(b.log[i].size, 24_K);
  }
  b.heap.malloc_trim(b.p, 0);
  EXPECT_EQ(b.calls(SysName::kMadvise), 2 * calls);
}

TEST(Trim, AHoleOfOneChunkHasNoWholePage) {
  Bench b("2.36");
  std::vector<Addr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(b.malloc(4000));
  for (std::size_t i = 0; i < blocks.size(); i += 2) b.free(blocks[i]);
  b.log.clear();
  b.heap.malloc_trim(b.p, 0);
  EXPECT_EQ(b.calls(SysName::kMadvise), 0u);
}

TEST(Tcache, SevenOfASizeInLastInFirstOutOrder) {
  Bench b("2.36");
  std::vector<Addr> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(b.malloc(200));
  for (const Addr mem : blocks) b.free(mem);
  for (int i = 6; i >= 0; --i)
    EXPECT_EQ(b.malloc(200), blocks[static_cast<std::size_t>(i)]);
}

TEST(TcacheDeathTest, ASecondFreeIsDetected) {
  Bench b("2.36");
  const Addr mem = b.malloc(24);
  b.free(mem);
  EXPECT_DEATH(b.free(mem), "double free detected in tcache 2");
}

}  // namespace
}  // namespace faultline::alloc::toy
