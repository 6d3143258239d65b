// SPDX-License-Identifier: Apache-2.0
//
// Random programs: blocks are aligned, don't overlap, keep what was written to them, and
// the heap stays consistent, for every release and several threads.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "allocator/ptmalloc/check.h"
#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

struct Block {
  Addr mem;
  std::uint64_t size;
  std::uint64_t stamp;
};

class Player {
 public:
  Player(Bench& bench, unsigned threads, std::uint32_t seed) : b_(bench), draw_(seed) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.push_back(std::make_unique<BenchThread>(b_.os, b_.log));
  }

  void step() {
    if (blocks_.size() > 400 || (!blocks_.empty() && pick(100) < 45))
      return drop(pick(blocks_.size()));
    if (!blocks_.empty() && pick(100) < 15) return resize(pick(blocks_.size()));
    const std::uint64_t size = any_size();
    Addr mem = 0;
    std::uint64_t alignment = 16;
    switch (pick(10)) {
      case 0:
        alignment = std::uint64_t{16} << pick(9);
        mem = b_.heap.memalign(thread(), alignment, size);
        break;
      case 1:
        mem = b_.heap.calloc(thread(), 1, size);
        for (std::uint64_t i = 0; i < size; i += 64)
          ASSERT_EQ(thread().load<std::uint8_t>(mem + i), 0);
        break;
      default:
        mem = b_.heap.malloc(thread(), size);
    }
    ASSERT_NE(mem, 0u);
    ASSERT_EQ(mem % alignment, 0u);
    add({mem, size, draw_()});
  }

  void drop_all() {
    while (!blocks_.empty()) drop(blocks_.size() - 1);
  }
  Thread& thread() { return threads_.empty() ? b_.p : threads_[pick(threads_.size())]->p; }
  void end_threads() {
    for (const auto& t : threads_) b_.heap.thread_exit(t->p);
    threads_.clear();
  }

 private:
  std::size_t pick(std::size_t n) { return draw_() % n; }
  std::uint64_t any_size() {
    switch (pick(20)) {
      case 0:
        return pick(300'000);
      case 1:
        return pick(3'000'000);
      case 2:
      case 3:
      case 4:
        return pick(20'000);
      case 5:
      case 6:
      case 7:
      case 8:
        return pick(2'000);
      default:
        return pick(200);
    }
  }
  static void word(Thread& p, const Block& b, std::uint64_t at) {
    p.store(b.mem + at, b.stamp + at);
  }
  // Marks the first and last word; a block of less than a word has none.
  void add(const Block& block) {
    ASSERT_GE(b_.heap.malloc_usable_size(b_.p, block.mem), block.size);
    for (const Block& other : blocks_)
      ASSERT_TRUE(block.mem + block.size <= other.mem ||
                  other.mem + other.size <= block.mem);
    if (block.size >= 8) {
      word(b_.p, block, (block.size - 8) & ~std::uint64_t{7});
      word(b_.p, block, 0);
    }
    blocks_.push_back(block);
  }
  void verify(Addr mem, const Block& b, std::uint64_t upto) {
    if (upto < 8) return;
    EXPECT_EQ(b_.p.load<std::uint64_t>(mem), b.stamp);
    const std::uint64_t end = (b.size - 8) & ~std::uint64_t{7};
    if (upto >= b.size) {
      EXPECT_EQ(b_.p.load<std::uint64_t>(mem + end), b.stamp + end);
    }
  }
  void drop(std::size_t i) {
    verify(blocks_[i].mem, blocks_[i], blocks_[i].size);
    b_.heap.free(thread(), blocks_[i].mem);
    blocks_[i] = blocks_.back();
    blocks_.pop_back();
  }
  void resize(std::size_t i) {
    const std::uint64_t size = any_size() + 1;
    const Block old = blocks_[i];
    blocks_[i] = blocks_.back();
    blocks_.pop_back();
    const Addr mem = b_.heap.realloc(thread(), old.mem, size);
    ASSERT_NE(mem, 0u);
    verify(mem, old, std::min(size, old.size));
    add({mem, size, draw_()});
  }

  Bench& b_;
  std::mt19937 draw_;
  std::deque<std::unique_ptr<BenchThread>> threads_;
  std::vector<Block> blocks_;
};

class RandomOps : public testing::TestWithParam<const char*> {};

void play(const char* release, unsigned threads, std::uint32_t seed, int steps) {
  Bench b(release);
  // As posted it would touch what it marked.
  b.os.has_vrange = b.heap.release().give_back == GiveBack::kVrange;
  b.heap.free(b.p, b.heap.malloc(b.p, 1));
  Player player(b, threads, seed);
  for (int i = 0; i < steps; ++i) {
    player.step();
    if (i % 200 == 0) {
      ASSERT_EQ(HeapCheck(b.p, b.heap).run(), "") << "step " << i << " seed " << seed;
    }
    if (i % 1000 == 999) b.heap.malloc_trim(b.p, 0);
    if (testing::Test::HasFailure()) return;
  }
  HeapCheck full(b.p, b.heap);
  EXPECT_EQ(full.run(), "");
  EXPECT_GT(full.chunks_seen(), 20u);
  player.drop_all();
  player.end_threads();
  EXPECT_EQ(HeapCheck(b.p, b.heap).run(), "");
  EXPECT_EQ(b.shared(Shared::kMmaps), 0u);
  EXPECT_EQ(b.shared(Shared::kMmappedMem), 0u);
}

TEST_P(RandomOps, OneThread) {
  for (std::uint32_t seed = 1; seed <= 2; ++seed) play(GetParam(), 0, seed, 4000);
}
TEST_P(RandomOps, FiveThreads) {
  for (std::uint32_t seed = 11; seed <= 12; ++seed) play(GetParam(), 5, seed, 4000);
}

std::vector<const char*> all_names() {
  std::vector<const char*> names;
  for (const ReleaseProfile& r : releases()) names.push_back(r.name.data());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Releases, RandomOps, testing::ValuesIn(all_names()),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (char& c : name)
                             if (c == '.' || c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace faultline::alloc::toy
