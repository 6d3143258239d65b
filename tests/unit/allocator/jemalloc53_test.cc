// SPDX-License-Identifier: Apache-2.0
//
// The real jemalloc 5.3 on the toy system: what it asks for, that its blocks are sound, and
// that several processes of one program don't meet in it.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/jemalloc/conf.h"
#include "allocator/jemalloc53/jemalloc53.h"
#include "allocator/platform/recording.h"
#include "tests/unit/allocator/jemalloc_record.h"
#include "tests/unit/allocator/ops.h"
#include "tests/unit/allocator/toy_os.h"

namespace faultline::alloc::toy {
namespace {

je::Settings conf(const char* text) {
  const je::ConfResult read = je::parse_conf_53(text);
  EXPECT_EQ(read.problem, "");
  return read.settings;
}

class Je53Bench {
 public:
  explicit Je53Bench(const char* options, PlatformFacts facts = {})
      : os(facts), toy(os), p(toy, log), heap(p, conf(options)) {}
  Addr malloc(std::uint64_t bytes) { return heap.malloc(p, bytes); }
  void free(Addr mem) { heap.free(p, mem); }
  [[nodiscard]] std::uint64_t given_back() const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < log.size(); ++i)
      if (log[i].name == SysName::kMadvise) bytes += log[i].size;
    return bytes;
  }
  ToyProcess os;
  SysLog log;
  ToyThread toy;
  Thread p;
  Jemalloc53<Thread> heap;
};

class Jemalloc53Test : public testing::Test {
 protected:
  void SetUp() override {
    if (!je53::kAvailable) GTEST_SKIP() << "built without " << je53::kPackage;
  }
};

TEST_F(Jemalloc53Test, ARecordAtOnceIsOneCallAndAFaultAPage) {
  Je53Bench b("dirty_decay_ms:0");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise, 1u);
  EXPECT_EQ(b.log[0].extra, static_cast<std::uint64_t>(sys::kMadvDontneed));
  EXPECT_EQ(r.bytes, kBlock);
  EXPECT_EQ(r.faults, 128u);
  EXPECT_EQ(r.others, 0u);
}

TEST_F(Jemalloc53Test, ARecordByFreeIsOneCallAndNoFault) {
  Je53Bench b("dirty_decay_ms:0,purge:free");
  const Record r = one_record(b);
  EXPECT_EQ(r.madvise, 1u);
  EXPECT_EQ(b.log[0].extra, static_cast<std::uint64_t>(sys::kMadvFree));
  EXPECT_EQ(r.bytes, kBlock);
  EXPECT_EQ(r.faults + r.others, 0u);
}

// With muzzy_decay_ms dirty pages that time out go lazily, but those that may not stay at
// all still go by force.
TEST_F(Jemalloc53Test, MuzzyPagesComeOfTimeOnly) {
  Je53Bench at_once("dirty_decay_ms:0,muzzy_decay_ms:-1");
  EXPECT_EQ(one_record(at_once).madvise, 1u);
  EXPECT_EQ(at_once.log[0].extra, static_cast<std::uint64_t>(sys::kMadvDontneed));
  Je53Bench b("dirty_decay_ms:100,muzzy_decay_ms:-1,narenas:1");
  b.free(b.malloc(kBlock));
  for (int i = 0; i < 10'000; ++i) {
    b.toy.now_ns += 100'000;
    b.free(b.malloc(64));
  }
  ASSERT_GT(b.log.count(SysName::kMadvise), 0u);
  std::uint64_t lazily = 0;
  for (std::size_t i = 0; i < b.log.size(); ++i) {
    if (b.log[i].name != SysName::kMadvise) continue;
    EXPECT_EQ(b.log[i].extra, static_cast<std::uint64_t>(sys::kMadvFree));
    lazily += b.log[i].size;
  }
  EXPECT_EQ(lazily, kBlock);
}

TEST_F(Jemalloc53Test, ARecordIsNoCallIfDirtyPagesMayStay) {
  for (const char* options : {"dirty_decay_ms:0,purge:none", "dirty_decay_ms:-1", ""}) {
    Je53Bench b(options);
    const Record r = one_record(b);
    EXPECT_EQ(r.madvise + r.others + r.faults, 0u) << options;
  }
}

TEST_F(Jemalloc53Test, OversizedBlocksGoBackAtOnce) {
  Je53Bench b("");
  const Addr mem = b.malloc(8_M);
  b.log.clear();
  b.free(mem);
  ASSERT_EQ(b.log.count(SysName::kMadvise), 1u);
  EXPECT_EQ(b.given_back(), 8_M);
  Je53Bench off("oversize_threshold:0");
  off.free(off.malloc(8_M));
  EXPECT_EQ(off.log.count(SysName::kMadvise), 0u);
}

TEST_F(Jemalloc53Test, AddressSpaceIsKeptAndGrowsGeometrically) {
  Je53Bench b("dirty_decay_ms:0");
  std::vector<Addr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(b.malloc(kBlock));
  std::vector<std::uint64_t> maps;
  for (std::size_t i = 0; i < b.log.size(); ++i)
    if (b.log[i].name == SysName::kMmap) maps.push_back(b.log[i].size);
  ASSERT_GE(maps.size(), 3u);
  EXPECT_EQ(maps[0], 2_M);
  for (std::size_t i = 1; i < maps.size(); ++i) EXPECT_GT(maps[i], maps[i - 1]);
  b.log.clear();
  for (const Addr a : blocks) b.free(a);
  for (Addr& a : blocks) a = b.malloc(kBlock);
  EXPECT_EQ(b.log.count(SysName::kMunmap) + b.log.count(SysName::kMmap), 0u);
}

// The curve of smoothstep over 10 s, driven by the process's clock alone.
TEST_F(Jemalloc53Test, DirtyPagesGoByTheCurve) {
  Je53Bench b("dirty_decay_ms:10000,narenas:1,tcache:false");
  std::vector<Addr> blocks;
  b.toy.now_ns = 5'000'000'000;
  for (int i = 0; i < 200; ++i) blocks.push_back(b.malloc(64_K));
  const auto wait = [&](std::uint64_t ms) {
    for (; ms >= 50; ms -= 50) {
      b.toy.now_ns += 50'000'000;
      for (int i = 0; i < 500; ++i) b.free(b.malloc(64));
    }
    return b.given_back();
  };
  wait(100);
  const std::uint64_t mine = 100 * 64_K;
  for (std::size_t i = 0; i < blocks.size(); i += 2) b.free(blocks[i]);
  EXPECT_LE(wait(200), 8_K);
  EXPECT_LE(wait(800), mine / 50);
  const std::uint64_t half = wait(4000);
  EXPECT_GE(half, mine * 4 / 10);
  EXPECT_LE(half, mine * 6 / 10);
  EXPECT_GE(wait(5400), mine * 99 / 100);
}

TEST_F(Jemalloc53Test, EachThreadHasAnArenaUntilThereAreNoMore) {
  Je53Bench b("narenas:3");
  std::vector<std::unique_ptr<BenchThread>> threads;
  for (int i = 0; i < 5; ++i) {
    threads.push_back(std::make_unique<BenchThread>(b.os, b.log));
    EXPECT_NE(b.heap.malloc(threads.back()->p, 100), 0u);
    EXPECT_EQ(b.heap.arenas(), std::min(3u, static_cast<unsigned>(i) + 1));
  }
  for (auto& t : threads) b.heap.thread_exit(t->p);
}

TEST_F(Jemalloc53Test, NoMemoryIsNull) {
  Je53Bench b("");
  b.os.largest_map = 64_K;
  EXPECT_EQ(b.malloc(kBlock), 0u);
  b.os.largest_map = UINT64_MAX;
  EXPECT_NE(b.malloc(kBlock), 0u);
  EXPECT_EQ(b.malloc(std::uint64_t{1} << 60), 0u);
  EXPECT_EQ(b.heap.memalign(b.p, 48, 100), 0u);
}

// A program of several threads: blocks are aligned, don't overlap and keep what was
// written.
class Play {
 public:
  Play(const char* options, std::uint64_t seed, unsigned threads)
      : bench_(options), source_(seed), draw_(static_cast<std::uint32_t>(seed)) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.push_back(std::make_unique<BenchThread>(bench_.os, bench_.log));
  }
  void step() {
    const ops::Op op = source_.next();
    if (op.kind == ops::Op::kTrim) return;
    bench_.toy.now_ns += 100'000;
    for (auto& t : threads_) t->toy.now_ns = bench_.toy.now_ns;
    Thread& p = threads_[draw_() % threads_.size()]->p;
    Block& block = blocks_[op.slot];
    const Block old = block;
    verify(p, old, old.size);
    std::uint64_t alignment = op.size >= 16 ? 16 : 8;
    block.size = op.size;
    if (op.kind == ops::Op::kMalloc) {
      block.mem = bench_.heap.malloc(p, op.size);
    } else if (op.kind == ops::Op::kCalloc) {
      block.mem = bench_.heap.calloc(p, 1, op.size);
      for (std::uint64_t i = 0; i < op.size; i += 64)
        ASSERT_EQ(p.load<std::uint8_t>(block.mem + i), 0);
    } else if (op.kind == ops::Op::kRealloc) {
      block.mem = bench_.heap.realloc(p, old.mem, op.size);
      verify(p, {block.mem, old.size, old.stamp}, std::min(old.size, op.size));
    } else if (op.kind == ops::Op::kMemalign) {
      alignment = op.alignment;
      block.mem = bench_.heap.memalign(p, op.alignment, op.size);
    } else {
      bench_.heap.free(p, old.mem);
      block = {};
      return;
    }
    events.push_back(block.mem);
    ASSERT_NE(block.mem, 0u);
    ASSERT_EQ(block.mem % alignment, 0u);
    ASSERT_GE(bench_.heap.malloc_usable_size(p, block.mem), op.size);
    for (const Block& other : blocks_)
      ASSERT_TRUE(&other == &block || other.mem == 0 ||
                  other.mem + other.size <= block.mem || block.mem + op.size <= other.mem);
    block.stamp = ++stamps_;
    if (op.size < 8) return;
    p.store(block.mem, block.stamp);
    p.store(block.mem + (op.size - 8) / 8 * 8, block.stamp);
  }
  void end() {
    for (auto& t : threads_) bench_.heap.thread_exit(t->p);
    for (std::size_t i = 0; i < bench_.log.size(); ++i) {
      const SysCall& c = bench_.log[i];
      events.push_back(c.addr);
      events.push_back(c.size);
      events.push_back(c.extra);
    }
  }
  std::vector<std::uint64_t> events;

 private:
  struct Block {
    Addr mem = 0;
    std::uint64_t size = 0, stamp = 0;
  };
  static void verify(Thread& p, const Block& b, std::uint64_t upto) {
    if (b.mem == 0 || upto < 8) return;
    ASSERT_EQ(p.load<std::uint64_t>(b.mem), b.stamp);
    if (upto == b.size) {
      ASSERT_EQ(p.load<std::uint64_t>(b.mem + (upto - 8) / 8 * 8), b.stamp);
    }
  }
  Je53Bench bench_;
  std::vector<std::unique_ptr<BenchThread>> threads_;
  ops::Source source_;
  std::mt19937 draw_;
  std::array<Block, ops::kSlots> blocks_{};
  std::uint64_t stamps_ = 0;
};

class Je53Options : public testing::TestWithParam<const char*> {};

TEST_P(Je53Options, RandomProgramsAreSoundAndRepeat) {
  if (!je53::kAvailable) GTEST_SKIP() << "built without " << je53::kPackage;
  constexpr int kSteps = 3000;
  Play first(GetParam(), 7, 4);
  for (int i = 0; i < kSteps; ++i) first.step();
  first.end();
  // Again while another process of the same addresses uses the library in between.
  Play again(GetParam(), 7, 4), other(GetParam(), 8, 3);
  for (int i = 0; i < kSteps; ++i) {
    again.step();
    other.step();
  }
  again.end();
  EXPECT_GT(first.events.size(), 1500u);
  EXPECT_TRUE(first.events == again.events);
}

INSTANTIATE_TEST_SUITE_P(Jemalloc53, Je53Options,
                         testing::Values("narenas:4", "narenas:2,purge:free",
                                         "narenas:4,purge:none", "narenas:4,tcache:false",
                                         "narenas:4,dirty_decay_ms:0",
                                         "narenas:4,dirty_decay_ms:10,muzzy_decay_ms:30",
                                         "narenas:4,dirty_decay_ms:0,muzzy_decay_ms:-1"),
                         [](const auto& one) { return case_name(one.param); });

TEST(Jemalloc53Conf, TakesItsOwnOptionsOnly) {
  EXPECT_EQ(je::parse_conf_53("lg_chunk:20").problem, "unknown option \"lg_chunk\"");
  const je::Settings s = conf("oversize_threshold:1048576,muzzy_decay_ms:5,narenas:2");
  EXPECT_EQ(s.oversize_threshold, 1_M);
  EXPECT_EQ(s.muzzy_decay_ms, 5);
  EXPECT_EQ(s.narenas, 2u);
}

}  // namespace
}  // namespace faultline::alloc::toy
