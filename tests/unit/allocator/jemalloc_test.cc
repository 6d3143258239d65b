// SPDX-License-Identifier: Apache-2.0
//
// What jemalloc asks of the system and where it puts blocks, on the toy system.
#include <gtest/gtest.h>

#include <vector>

#include "allocator/jemalloc/check.h"
#include "allocator/jemalloc/conf.h"
#include "allocator/platform/recording.h"
#include "tests/unit/allocator/jemalloc_record.h"
#include "tests/unit/allocator/toy_os.h"

namespace faultline::alloc::toy {
namespace {

using je::RunState;

constexpr std::uint64_t kChunk = 4_M, kHeader = 6 * 4096;

je::Settings conf(const char* text) {
  const je::ConfResult read = je::parse_conf(text);
  EXPECT_EQ(read.problem, "");
  return read.settings;
}

class JeBench {
 public:
  explicit JeBench(const char* options = "", PlatformFacts facts = {})
      : os(facts), toy(os), p(toy, log), heap(p, conf(options)) {}

  Addr malloc(std::uint64_t bytes) { return heap.malloc(p, bytes); }
  void free(Addr mem) { heap.free(p, mem); }
  std::string check() { return JemallocCheck(p, heap).run(); }
  std::uint64_t dirty() {
    return heap.pages_of(p, heap.arena_at(p, 0)).free[static_cast<int>(RunState::kDirty)];
  }
  [[nodiscard]] std::uint64_t in_chunk(Addr a) const { return a % kChunk; }

  ToyProcess os;
  SysLog log;
  ToyThread toy;
  Thread p;
  Jemalloc<Thread> heap;
};

TEST(JemallocSizes, AreThoseOf331) {
  const je::Geometry g(4096, 22);
  EXPECT_EQ(g.first_page, 6u);
  EXPECT_EQ(g.max_run, 4'169'728u);
  const je::SizeClasses c(g.page, g.max_run);
  ASSERT_EQ(c.count(), 28u);
  const std::vector<std::uint64_t> expected = {
      8,   16,  32,  48,  64,  80,  96,   112,  128,  160,  192,  224,  256,  320,
      384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584};
  for (unsigned i = 0; i < c.count(); ++i) {
    EXPECT_EQ(c[i].region, expected[i]);
    EXPECT_EQ(c.bin_of(expected[i]), i);
    if (i > 0) {
      EXPECT_EQ(c.bin_of(expected[i - 1] + 1), i);
    }
    EXPECT_GE(c[i].first, 16 + 8 * c[i].bitmap_words);
    EXPECT_EQ(c[i].first + c[i].region * c[i].regions, c[i].run);
    EXPECT_LE(c[i].first * 4096ull, c[i].region < 13 ? c[i].run * 4096 : c[i].run * 0x3d)
        << c[i].region;
  }
}

TEST(JemallocSizes, GrowWithThePage) {
  const je::Geometry g(65536, 22);
  EXPECT_EQ(g.first_page, 1u);
  const je::SizeClasses c(g.page, g.max_run);
  EXPECT_EQ(c.largest(), 57'344u);
  EXPECT_EQ(c.bin_of(57'344), c.count() - 1);
}

TEST(Jemalloc, SevenBlocksOfHalfAMegabyteFillAChunkFromBelow) {
  JeBench b;
  std::vector<Addr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(b.malloc(kBlock));
  for (unsigned i = 0; i < 7; ++i) {
    EXPECT_EQ(b.in_chunk(blocks[i]), kHeader + i * kBlock);
    EXPECT_EQ(b.heap.geometry().chunk_of(blocks[i]), b.heap.geometry().chunk_of(blocks[0]));
  }
  EXPECT_NE(b.heap.geometry().chunk_of(blocks[7]), b.heap.geometry().chunk_of(blocks[0]));
  EXPECT_EQ(b.check(), "");
}

TEST(Jemalloc, TheSmallestRunThatFitsIsTakenAndOfThoseTheLowest) {
  JeBench b("purge:none");
  const Addr guard0 = b.malloc(64_K);
  const Addr large = b.malloc(200_K);
  const Addr guard1 = b.malloc(64_K);
  const Addr low = b.malloc(100_K);
  const Addr guard2 = b.malloc(64_K);
  const Addr high = b.malloc(100_K);
  const Addr guard3 = b.malloc(64_K);
  for (const Addr a : {large, high, low}) b.free(a);
  EXPECT_EQ(b.malloc(100_K), low);
  EXPECT_EQ(b.malloc(90_K), high);
  EXPECT_EQ(b.malloc(90_K), large);
  EXPECT_EQ(b.check(), "");
  for (const Addr a : {guard0, guard1, guard2, guard3}) b.free(a);
}

TEST(JemallocRecord, DontneedIsOneCallOfTheBlockAndAFaultAPage) {
  JeBench b("purge:dontneed");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise, 1u);
  EXPECT_EQ(r.bytes, kBlock);
  EXPECT_EQ(r.faults, 128u);
}

TEST(JemallocRecord, FreeIsOneCallAndNoFault) {
  JeBench b("purge:free");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise, 1u);
  EXPECT_EQ(b.log[0].extra, static_cast<std::uint64_t>(sys::kMadvFree));
  EXPECT_EQ(r.bytes, kBlock);
  EXPECT_EQ(r.faults, 0u);
}

TEST(JemallocRecord, VrangeIsTwoCallsAndNoFault) {
  JeBench b("purge:vrange");
  b.os.has_vrange = true;
  one_record(b);
  ASSERT_EQ(b.log.size(), 2u);
  EXPECT_EQ(b.log.count(SysName::kVrange), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(b.log[i].size, kBlock);
  EXPECT_EQ(b.log[0].extra, static_cast<std::uint64_t>(sys::kVrangeNovolatile));
  EXPECT_EQ(b.log[1].extra, static_cast<std::uint64_t>(sys::kVrangeVolatile));
  EXPECT_EQ(b.log[0].addr, b.log[1].addr);
  EXPECT_EQ(one_record(b).faults, 0u);
}

TEST(JemallocRecord, WithoutTheCallVrangeIsDontneed) {
  JeBench b("purge:vrange");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise, 1u);
  EXPECT_EQ(r.faults, 128u);
  EXPECT_EQ(b.log.count(SysName::kVrange, true), 0u);  // tried once, long ago
}

TEST(Jemalloc, VolatileRunsDontJoinCleanOnes) {
  JeBench b("purge:vrange");
  b.os.has_vrange = true;
  const Addr mem = b.malloc(kBlock);
  b.free(mem);
  const je::ArenaPages pages = b.heap.pages_of(b.p, b.heap.arena_at(b.p, 0));
  EXPECT_EQ(pages.free[static_cast<int>(RunState::kVolatile)], 128u);
  EXPECT_NE(b.malloc(4'169'728) / kChunk, mem / kChunk);  // the chunk never becomes whole
  EXPECT_EQ(b.malloc(256_K), mem);                        // half of it is asked for again
  EXPECT_EQ(b.check(), "");
}

TEST(JemallocRecord, NoneIsNoCallAndNoFault) {
  JeBench b("purge:none");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise + r.bytes + r.faults, 0u);
}

TEST(Jemalloc, AsManyDirtyPagesStayAsTheRatioAllows) {
  JeBench b("lg_dirty_mult:3");
  std::vector<Addr> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(b.malloc(64_K));
  for (int i = 0; i < 32; i += 2) {
    b.free(blocks[static_cast<std::size_t>(i)]);
    const je::ArenaPages pages = b.heap.pages_of(b.p, b.heap.arena_at(b.p, 0));
    EXPECT_LE(b.dirty(), pages.active / 8);
    EXPECT_EQ(b.check(), "");
  }
  EXPECT_GT(b.dirty(), 0u);
  EXPECT_GT(b.log.count(SysName::kMadvise), 0u);
}

TEST(Jemalloc, FreeChunksAreUsedAgainAndOnlyOneIsSpare) {
  JeBench b;
  std::vector<Addr> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(b.malloc(4'169'728));  // a chunk each
  const std::size_t maps = b.log.count(SysName::kMmap);
  b.log.clear();
  for (const Addr a : blocks) b.free(a);
  // All but the spare are given back whole; the run was before, when it became free.
  std::size_t whole = 0;
  for (std::size_t i = 0; i < b.log.size(); ++i) whole += b.log[i].size == kChunk;
  EXPECT_EQ(whole, 3u);
  EXPECT_EQ(b.log.count(SysName::kMunmap), 0u);
  for (Addr& a : blocks) a = b.malloc(4'169'728);
  EXPECT_EQ(b.log.count(SysName::kMmap), 0u);
  EXPECT_GE(maps, 4u);
  EXPECT_EQ(b.check(), "");
}

TEST(Jemalloc, HugeBlocksAreChunksAndTheirRestIsRecycled) {
  JeBench b;
  const Addr huge = b.malloc(9_M);
  EXPECT_EQ(b.in_chunk(huge), 0u);
  EXPECT_EQ(b.heap.malloc_usable_size(b.p, huge), 12_M);
  b.p.set(huge, 0x5a, 9_M);
  b.free(huge);
  const Addr zeroed = b.heap.calloc(b.p, 1, 5_M);
  EXPECT_EQ(zeroed, huge);
  EXPECT_EQ(b.p.load<std::uint64_t>(zeroed), 0u);
  const Addr moved = b.heap.realloc(b.p, zeroed, 100);
  EXPECT_EQ(b.heap.malloc_usable_size(b.p, moved), 112u);
}

TEST(Jemalloc, SmallRegionsComeLowestFirstAndWhatWasNeverUsedStaysClean) {
  JeBench b("tcache:false,purge:none");
  std::vector<Addr> regions;
  const je::BinInfo info = b.heap.classes()[b.heap.classes().bin_of(1024)];
  for (unsigned i = 0; i < 3; ++i) regions.push_back(b.malloc(1024));
  EXPECT_EQ(regions[1] - regions[0], 1024u);
  b.free(regions[0]);
  EXPECT_EQ(b.malloc(1000), regions[0]);
  for (const Addr a : regions) b.free(a);
  EXPECT_EQ(b.dirty(), 1u + (info.first + 3 * 1024 > 4096 ? 1 : 0));
  EXPECT_EQ(b.check(), "");
}

TEST(Jemalloc, TheCacheTakesFreesUntilItIsFullAndFlushesHalf) {
  JeBench b("purge:none");
  std::vector<Addr> all;
  for (int i = 0; i < 21; ++i) all.push_back(b.malloc(20'000));
  for (int i = 0; i < 20; ++i) b.free(all[static_cast<std::size_t>(i)]);
  EXPECT_EQ(b.dirty(), 0u);
  b.free(all[20]);
  EXPECT_EQ(b.dirty(), 10u * 5);
  EXPECT_EQ(b.malloc(20'000), all[20]);
}

TEST(Jemalloc, EachThreadHasAnArenaUntilThereAreNoMore) {
  PlatformFacts facts;
  facts.cpus = 12;
  JeBench b("", facts);
  EXPECT_EQ(b.heap.narenas(), 48u);
  b.malloc(kBlock);
  std::vector<std::unique_ptr<BenchThread>> threads;
  std::set<Addr> chunks;
  for (int i = 0; i < 24; ++i) {
    threads.push_back(std::make_unique<BenchThread>(b.os, b.log));
    chunks.insert(b.heap.geometry().chunk_of(b.heap.malloc(threads.back()->p, kBlock)));
  }
  EXPECT_EQ(chunks.size(), 24u);
  for (const auto& t : threads) b.heap.thread_exit(t->p);
  BenchThread next(b.os, b.log);
  const Addr mem = b.heap.malloc(next.p, kBlock);
  EXPECT_TRUE(chunks.contains(b.heap.geometry().chunk_of(mem)));  // an arena let go
}

TEST(JemallocDecay, DirtyPagesGoByTheCurve) {
  JeBench b("dirty_decay_ms:10000,muzzy_decay_ms:0,narenas:1,tcache:false");
  std::vector<Addr> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(b.malloc(16_K));
  const auto tick = [&](std::uint64_t ms) {
    b.toy.now_ns += ms * 1'000'000;
    for (int i = 0; i < 600; ++i) b.free(b.malloc(16_K));
  };
  b.toy.now_ns = 1'000'000;
  tick(0);
  for (std::size_t i = 0; i < blocks.size(); i += 2) b.free(blocks[i]);
  tick(60);  // they are seen
  const std::uint64_t all = b.dirty();
  EXPECT_EQ(all, 404u);  // and the block of the ticks
  tick(1000);
  EXPECT_GE(b.dirty(), all * 9 / 10);
  tick(4000);
  EXPECT_LE(b.dirty(), all * 3 / 4);
  EXPECT_GE(b.dirty(), all / 4);
  tick(5000);
  EXPECT_LE(b.dirty(), all / 20);
  EXPECT_EQ(b.check(), "");
}

TEST(JemallocDecay, ZeroIsAtOnceAndMuzzyComesFirst) {
  JeBench b("dirty_decay_ms:0,muzzy_decay_ms:1000,narenas:1");
  b.toy.now_ns = 1;
  b.free(b.malloc(kBlock));
  EXPECT_EQ(b.dirty(), 0u);
  const je::ArenaPages pages = b.heap.pages_of(b.p, b.heap.arena_at(b.p, 0));
  EXPECT_EQ(pages.free[static_cast<int>(RunState::kMuzzy)], 128u);
  ASSERT_EQ(b.log.count(SysName::kMadvise), 1u);
  EXPECT_EQ(b.check(), "");
}

TEST(JemallocConf, ReadsOptionsAndSaysWhatIsWrong) {
  const je::ConfResult good =
      je::parse_conf("lg_chunk:21,narenas:3,lg_dirty_mult:-1,tcache:false,purge:vrange");
  EXPECT_EQ(good.problem, "");
  EXPECT_EQ(good.settings.lg_chunk, 21u);
  EXPECT_EQ(good.settings.narenas, 3u);
  EXPECT_EQ(good.settings.lg_dirty_mult, -1);
  EXPECT_FALSE(good.settings.tcache);
  EXPECT_EQ(good.settings.purge, je::Purge::kVrange);
  EXPECT_EQ(je::parse_conf("dirty_decay_ms:0").settings.rule, je::PurgeRule::kDecay);
  EXPECT_EQ(je::parse_conf("narena:1").problem, "unknown option \"narena\"");
  EXPECT_EQ(je::parse_conf("purge:lazy").problem,
            "purge: \"lazy\" is not one of its values");
  EXPECT_EQ(je::parse_conf("narenas:0").problem,
            "narenas: \"0\" is not a number from 1 to 4096");
  EXPECT_EQ(je::parse_conf("narenas").problem, "\"narenas\" has no value");
  je::Settings s;
  static std::vector<std::string> passed_over;
  passed_over.clear();
  je::apply_conf("nonsense:1,lg_chunk:x,narenas:7,,:", s,
                 [](std::string_view pair) { passed_over.emplace_back(pair); });
  EXPECT_EQ(s.narenas, 7u);
  EXPECT_EQ(s.lg_chunk, 22u);
  EXPECT_EQ(passed_over, (std::vector<std::string>{"nonsense:1", "lg_chunk:x", "", ":"}));
}

}  // namespace
}  // namespace faultline::alloc::toy
