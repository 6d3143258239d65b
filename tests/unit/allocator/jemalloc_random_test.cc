// SPDX-License-Identifier: Apache-2.0
//
// Random programs on jemalloc: blocks are aligned, don't overlap, keep what was written to
// them, and arenas stay sound; and the toy system, the modelled kernel and the real one see
// the same blocks and the same calls.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/jemalloc/check.h"
#include "allocator/jemalloc/conf.h"
#include "allocator/platform/native.h"
#include "allocator/platform/recording.h"
#include "tests/unit/allocator/jemalloc_record.h"
#include "tests/unit/allocator/model_bench.h"
#include "tests/unit/allocator/ops.h"
#include "tests/unit/allocator/toy_os.h"

namespace faultline::alloc {
namespace {

using ops::Op;

// A program on one thread, or spread over several that take turns.
template <typename P>
class JePlay {
 public:
  JePlay(std::vector<P*> threads, const char* options, std::uint64_t seed)
      : log_(1 << 18),
        heap_(start(threads), je::parse_conf(options).settings),
        source_(seed),
        draw_(static_cast<std::uint32_t>(seed)) {}

  void run(unsigned steps) {
    for (unsigned i = 0; i < steps; ++i) {
      step(source_.next());
      if (i % 500 != 0) continue;
      ASSERT_EQ(JemallocCheck(*threads_[0], heap_).run(), "") << "step " << i;
    }
  }
  void drop_all() {
    for (Block& b : blocks_)
      if (b.mem != 0) heap_.free(any(), b.mem);
    for (std::size_t i = 1; i < threads_.size(); ++i) heap_.thread_exit(*threads_[i]);
    EXPECT_EQ(JemallocCheck(*threads_[0], heap_).run(), "");
  }
  // Blocks, and what was given back, as chunk number and offset: chunks by first
  // appearance.
  std::vector<std::string> events;
  // Each chunk lay below all before it; if not, lowest-first means another order.
  bool descending = true;

 private:
  struct Block {
    Addr mem = 0;
    std::uint64_t size = 0, stamp = 0;
  };
  Recording<P>& start(const std::vector<P*>& threads) {
    for (P* p : threads) threads_.push_back(std::make_unique<Recording<P>>(*p, log_));
    return *threads_[0];
  }
  Recording<P>& any() { return *threads_[draw_() % threads_.size()]; }

  void step(const Op& op) {
    if (op.kind == Op::kTrim) return;
    Recording<P>& p = any();
    Block& block = blocks_[op.slot];
    if (block.mem != 0) verify(p, block.mem, block, block.size);
    const Block old = block;
    std::uint64_t alignment = op.size >= 16 ? 16 : 8;
    switch (op.kind) {
      case Op::kMalloc:
        block.mem = heap_.malloc(p, op.size);
        break;
      case Op::kCalloc:
        block.mem = heap_.calloc(p, 1, op.size);
        for (std::uint64_t i = 0; i + 8 <= op.size; i += 512)
          ASSERT_EQ(p.template load<std::uint8_t>(block.mem + i), 0);
        break;
      case Op::kRealloc:
        block.mem = heap_.realloc(p, old.mem, op.size);
        verify(p, block.mem, old, std::min(old.size, op.size));
        break;
      case Op::kMemalign:
        alignment = op.alignment;
        block.mem = heap_.memalign(p, op.alignment, op.size);
        break;
      default:
        heap_.free(p, old.mem);
        block.mem = 0;
        break;
    }
    note(block.mem);
    if (op.kind == Op::kFree) return;
    ASSERT_NE(block.mem, 0u);
    ASSERT_EQ(block.mem % alignment, 0u);
    ASSERT_GE(heap_.malloc_usable_size(p, block.mem), op.size);
    block.size = op.size;
    block.stamp = ++stamps_;
    for (const Block& other : blocks_)
      ASSERT_TRUE(&other == &block || other.mem == 0 ||
                  other.mem + other.size <= block.mem ||
                  block.mem + block.size <= other.mem);
    if (op.size < 8) return;
    p.store(block.mem, block.stamp);
    p.store(block.mem + last_word(op.size), block.stamp);
  }
  static std::uint64_t last_word(std::uint64_t size) {
    return (size - 8) & ~std::uint64_t{7};
  }
  void verify(Recording<P>& p, Addr mem, const Block& b, std::uint64_t upto) {
    if (upto < 8) return;
    ASSERT_EQ(p.template load<std::uint64_t>(mem), b.stamp);
    if (upto == b.size) {
      ASSERT_EQ(p.template load<std::uint64_t>(mem + last_word(b.size)), b.stamp);
    }
  }
  std::string place(Addr a) {
    const Addr chunk = heap_.geometry().chunk_of(a);
    if (!chunks_.contains(chunk) && !chunks_.empty() && chunk > chunks_.begin()->first)
      descending = false;
    const auto number = chunks_.try_emplace(chunk, chunks_.size()).first->second;
    return std::to_string(number) + "+" + std::to_string(a - chunk);
  }
  void note(Addr mem) {
    for (; seen_ < log_.size(); ++seen_) {
      const SysCall& c = log_[seen_];
      if (c.name == SysName::kMadvise)
        events.push_back("madvise " + place(c.addr) + " " + std::to_string(c.size) + " " +
                         std::to_string(c.extra) + (c.error != 0 ? " failed" : ""));
    }
    events.push_back(mem == 0 ? "0" : place(mem));
  }

  SysLog log_;
  std::vector<std::unique_ptr<Recording<P>>> threads_;
  Jemalloc<Recording<P>> heap_;
  ops::Source source_;
  std::mt19937 draw_;
  std::array<Block, ops::kSlots> blocks_{};
  std::map<Addr, std::size_t> chunks_;
  std::size_t seen_ = 0;
  std::uint64_t stamps_ = 0;
};

std::vector<std::string> in_toy(const char* options, std::uint64_t seed, unsigned steps,
                                unsigned threads, std::uint64_t page = 4096) {
  PlatformFacts facts;
  facts.page_size = page;
  toy::ToyProcess os(facts);
  os.has_vrange = true;
  std::vector<std::unique_ptr<toy::ToyThread>> own;
  std::vector<toy::ToyThread*> all;
  for (unsigned i = 0; i < threads; ++i) {
    own.push_back(std::make_unique<toy::ToyThread>(os));
    all.push_back(own.back().get());
  }
  JePlay<toy::ToyThread> play(all, options, seed);
  play.run(steps);
  std::vector<std::string> events = play.events;
  play.drop_all();
  return events;
}

class JeOptions : public testing::TestWithParam<const char*> {};

TEST_P(JeOptions, OneThread) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) in_toy(GetParam(), seed, 6000, 1);
}
TEST_P(JeOptions, FiveThreads) {
  for (std::uint64_t seed = 11; seed <= 12; ++seed) in_toy(GetParam(), seed, 6000, 5);
}
TEST_P(JeOptions, PagesOf64KiB) {
  in_toy(GetParam(), 21, 3000, 2, 65536);
}

TEST_P(JeOptions, SameInAllWorlds) {
  constexpr unsigned kSteps = 6000;
  const std::vector<std::string> toy = in_toy(GetParam(), 31, kSteps, 1);
  ASSERT_GT(toy.size(), kSteps - 100);
  std::vector<std::string> model;
  modelled::Machine machine({.profile = "x86-4k"});
  machine.run([&](Model& p) {
    JePlay<Model> play({&p}, GetParam(), 31);
    play.run(kSteps);
    model = play.events;
  });
  EXPECT_EQ(model, toy);
  if (sysconf(_SC_PAGESIZE) != 4096) return;
  const auto process = std::make_unique<NativeProcess>();
  Native p(*process);
  JePlay<Native> play({&p}, GetParam(), 31);
  play.run(kSteps);
  // Other mappings of this process may leave holes that the kernel fills.
  if (play.descending) {
    EXPECT_EQ(play.events, toy);
  }
}

// A volatile run is never touched before it was asked for again: the toy system would end
// the test.
TEST(JeVrange, NothingVolatileIsTouched) {
  for (std::uint64_t seed = 41; seed <= 42; ++seed) {
    in_toy("narenas:4,purge:vrange", seed, 6000, 1);
    in_toy("narenas:4,purge:vrange,lg_dirty_mult:0,lg_chunk:20", seed, 6000, 5);
  }
}

// One thread is in the kernel with what it gives back; what another frees meanwhile is that
// one's to give back, not lost for the first one's sake.
TEST(JePurge, WhatIsFreedDuringAPurgeIsPurgedToo) {
  const je::ConfResult conf = je::parse_conf("narenas:1");
  modelled::Machine machine({.profile = "x86-4k"});
  struct Shared {
    Jemalloc<Model> heap;
    bool freed_during = false;
    bool purging = false;
  };
  machine.run([&](Model& p) {
    Shared shared{Jemalloc<Model>(p, conf.settings)};
    p.run_threads(
        2,
        [](Model& t, unsigned index, void* arg) {
          Shared& s = *static_cast<Shared*>(arg);
          const std::uint64_t bytes = index == 0 ? 3 << 20 : 512 << 10;
          const Addr block = s.heap.malloc(t, bytes);
          t.set(block, 1, bytes);
          constexpr std::uint64_t kFree = 20'000,
                                  kLater = 20;  // us: in the midst of 768 pages
          t.usleep(kFree + index * kLater - t.monotonic_ns() / 1000);
          if (index == 0) s.purging = true;
          if (index == 1) s.freed_during = s.purging;
          s.heap.free(t, block);
          if (index == 0) s.purging = false;
        },
        &shared);
    EXPECT_TRUE(shared.freed_during);
    const je::ArenaPages pages = shared.heap.pages_of(p, shared.heap.arena_at(p, 0));
    EXPECT_EQ(pages.free[static_cast<int>(je::RunState::kDirty)], 0u);
    EXPECT_EQ(JemallocCheck(p, shared.heap).run(), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Jemalloc, JeOptions,
                         testing::Values("narenas:4", "narenas:4,purge:free",
                                         "narenas:4,purge:none",
                                         "narenas:4,lg_dirty_mult:0",
                                         "narenas:4,lg_chunk:20,tcache:false",
                                         "narenas:4,dirty_decay_ms:0",
                                         "narenas:4,dirty_decay_ms:0,muzzy_decay_ms:-1"),
                         [](const auto& one) { return toy::case_name(one.param); });

}  // namespace
}  // namespace faultline::alloc
