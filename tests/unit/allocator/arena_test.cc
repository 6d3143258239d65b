// SPDX-License-Identifier: Apache-2.0
//
// Threads: their arenas and heaps, as measured on real glibc releases.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "allocator/ptmalloc/check.h"
#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

// A process whose main thread has the main arena, and so many further threads.
class Crew : public Bench {
 public:
  Crew(const char* release, unsigned threads, PlatformFacts facts = {})
      : Bench(release, facts) {
    malloc(24);
    for (unsigned i = 0; i < threads; ++i)
      crew_.push_back(std::make_unique<BenchThread>(os, log));
    log.clear();
  }
  Thread& operator[](std::size_t i) { return crew_[i]->p; }
  Addr malloc_in(std::size_t i, std::uint64_t bytes) {
    return heap.malloc((*this)[i], bytes);
  }
  void exit(std::size_t i) { heap.thread_exit((*this)[i]); }

 private:
  std::vector<std::unique_ptr<BenchThread>> crew_;
};

std::vector<SysName> names(const SysLog& log) {
  std::vector<SysName> all;
  for (std::size_t i = 0; i < log.size(); ++i) all.push_back(log[i].name);
  return all;
}

TEST(ThreadArena, IsCutOutOfTwice64MiB) {
  Crew b("2.36", 1);
  b.malloc_in(0, 24);
  using enum SysName;
  EXPECT_EQ(names(b.log), (std::vector<SysName>{kMmap, kMunmap, kMunmap, kMprotect}));
  EXPECT_EQ(b.log[0].size, 128_M);
  EXPECT_EQ(b.log[0].extra, sys::kProtNone);
  EXPECT_EQ(b.log[0].flags & sys::kMapNoreserve, sys::kMapNoreserve);
  EXPECT_EQ(b.log[1].size + b.log[2].size, 64_M);
  EXPECT_EQ(b.log[3].size, 135168u);
}

TEST(ThreadArena, OfReleasesSince237IsReservedWithoutNoreserve) {
  Crew b("2.39", 1);
  b.malloc_in(0, 24);
  EXPECT_EQ(b.log[0].flags & sys::kMapNoreserve, 0u);
}

TEST(ThreadArena, FirstPointer) {
  const auto offset = [](const char* release) {
    Crew b(release, 1);
    return b.malloc_in(0, 24) % kHeapMax;
  };
  EXPECT_EQ(offset("2.36"), 0xb70u);
  EXPECT_EQ(offset("2.39"), 0xb70u);
  EXPECT_EQ(offset("2.43-x86"), 0x880u);
}

TEST(ThreadArena, AnAlignedReservationLeavesThePlaceOfTheNextHeap) {
  Crew b("2.36", 2);
  b.os.mmap_top = 0x7fff'f000'0000;  // a multiple of 64 MiB
  b.malloc_in(0, 24);
  using enum SysName;
  EXPECT_EQ(names(b.log), (std::vector<SysName>{kMmap, kMunmap, kMprotect}));
  b.log.clear();
  b.malloc_in(1, 24);
  EXPECT_EQ(names(b.log), (std::vector<SysName>{kMmap, kMprotect}));
  EXPECT_EQ(b.log[0].addr, b.log[0].result);
}

TEST(ThreadArena, GrowsWithoutPaddingOneCallForEachLargeBlock) {
  Crew b("2.36", 1);
  for (int i = 0; i < 600; ++i) b.malloc_in(0, 120'000);
  // One for each block but one: the second heap opens with room for two.
  EXPECT_EQ(b.calls(SysName::kMprotect), 599u);
  EXPECT_EQ(HeapCheck(b.p, b.heap).run(), "");
}

TEST(ThreadArena, FreeingInReverseGivesPagesBackBlockByBlock) {
  Crew b("2.36", 1);
  std::vector<Addr> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(b.malloc_in(0, 120'000));
  b.log.clear();
  for (; !blocks.empty(); blocks.pop_back()) b.heap.free(b[0], blocks.back());
  EXPECT_GE(b.calls(SysName::kMadvise), 495u);
  EXPECT_LE(b.calls(SysName::kMadvise), 500u);
  b.log.clear();
  b.malloc_in(0, 120'000);
  EXPECT_EQ(b.log.size(), 0u);  // the pages are still open
}

TEST(ThreadArena, UnderStrictOvercommitShrinkingMapsAnew) {
  PlatformFacts facts;
  facts.overcommit_memory = 2;
  Crew b("2.36", 1, facts);
  std::vector<Addr> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(b.malloc_in(0, 120'000));
  b.log.clear();
  for (; !blocks.empty(); blocks.pop_back()) b.heap.free(b[0], blocks.back());
  EXPECT_EQ(b.calls(SysName::kMadvise), 0u);
  EXPECT_GE(b.calls(SysName::kMmap), 5u);
  EXPECT_EQ(HeapCheck(b.p, b.heap).run(), "");
}

// To 2.41 the rest of a full heap goes into the thread's cache if it is small; then the
// heap after it can't be given back before the thread ends.
TEST(ThreadArena, ASecondHeapIsUnmappedWhenItEmptiesOrAtThreadExit) {
  const auto unmapped_early = [](const char* release, std::uint64_t rest) {
    Crew b(release, 1);
    std::vector<Addr> blocks;
    const Addr first = b.malloc_in(0, 100'000);
    while (true) {
      const Addr top = b.heap.arena(b[0], heap_of(first) + 48).top();
      const std::uint64_t left = heap_of(first) + kHeapMax - top;
      if (left <= rest) break;
      blocks.push_back(b.malloc_in(0, std::min<std::uint64_t>(100'000, left - rest - 8)));
    }
    blocks.push_back(b.malloc_in(0, 100'000));
    blocks.push_back(b.malloc_in(0, 100'000));
    EXPECT_NE(heap_of(blocks.back()), heap_of(first));
    b.log.clear();
    for (; !blocks.empty(); blocks.pop_back()) b.heap.free(b[0], blocks.back());
    const bool early = b.calls(SysName::kMunmap) == 1;
    b.exit(0);
    b.heap.free(b.p, first);
    EXPECT_EQ(b.calls(SysName::kMunmap), 1u);
    return early;
  };
  EXPECT_FALSE(unmapped_early("2.36", 512));
  EXPECT_TRUE(unmapped_early("2.36", 4096));
  EXPECT_TRUE(unmapped_early("2.43-x86", 512));
}

TEST(ArenaChoice, EightForEachCpu) {
  PlatformFacts facts;
  facts.cpus = 2;
  for (const char* release : {"2.26", "2.36", "2.43-x86"}) {
    Crew b(release, 24, facts);
    for (std::size_t i = 0; i < 24; ++i) b.malloc_in(i, 24);
    EXPECT_EQ(b.shared(Shared::kArenas), 16u) << release;
  }
}

TEST(ArenaChoice, OneForEachCpuSince244ButAtLeastEight) {
  PlatformFacts facts;
  for (const unsigned cpus : {2u, 16u}) {
    facts.cpus = cpus;
    Crew b("2.44", 40, facts);
    for (std::size_t i = 0; i < 40; ++i) b.malloc_in(i, 24);
    EXPECT_EQ(b.shared(Shared::kArenas), std::max(cpus, 8u));
  }
}

TEST(ArenaChoice, AnArenaThatWasLetGoIsTakenFirst) {
  Crew b("2.36", 3);
  const Addr first = b.malloc_in(0, 24);
  b.malloc_in(1, 24);
  b.exit(0);
  b.log.clear();
  EXPECT_EQ(heap_of(b.malloc_in(2, 24)), heap_of(first));
  EXPECT_EQ(b.log.size(), 0u);
}

TEST(ArenaChoice, SharingStartsAtTheMainArenaAndSkipsLockedOnes) {
  PlatformFacts facts;
  Crew b("2.36", 12, facts);  // one CPU: 8 arenas, but none is refused before there are 9
  for (std::size_t i = 0; i < 8; ++i) b.malloc_in(i, 24);
  EXPECT_EQ(b.shared(Shared::kArenas), 9u);
  auto& main_lock = b.heap.arena(b.p, b.heap.main_arena_address()).lock();
  ASSERT_TRUE(b.p.try_lock(main_lock));
  const Addr shared_one = heap_of(b.malloc_in(8, 24));
  b.p.unlock(main_lock);
  EXPECT_EQ(shared_one, heap_of(b.heap.arena(b.p, b.heap.main_arena_address()).next()));
  EXPECT_EQ(b.shared(Shared::kArenas), 9u);
  const Addr next_one = heap_of(b.malloc_in(9, 24));
  EXPECT_NE(next_one, shared_one);
}

TEST(ArenaChoice, ABlockTooLargeForAnyArenaIsTriedThreeTimes) {
  Crew b("2.36", 1);
  b.os.largest_map = 1_M * 1024;
  b.os.largest_brk = 1_M * 1024;
  b.malloc_in(0, 24);
  b.log.clear();
  EXPECT_EQ(b.malloc_in(0, 1_M * 2048), 0u);
  using enum SysName;
  EXPECT_EQ(names(b.log), (std::vector<SysName>{kMmap, kMmap, kSbrk, kMmap}));
  EXPECT_EQ(b.failed(kMmap), 3u);
}

TEST(CrossThread, AChunkFreedElsewhereGoesToTheFreeingThreadsCache) {
  Crew b("2.36", 2);
  const Addr mem = b.malloc_in(0, 100);
  b.heap.free(b[1], mem);
  EXPECT_EQ(b.malloc_in(1, 100), mem);
}

}  // namespace
}  // namespace faultline::alloc::toy
