// SPDX-License-Identifier: Apache-2.0
//
// Real threads on the real kernel: blocks that one thread allocates and another frees.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>

#include "allocator/platform/native.h"
#include "allocator/ptmalloc/check.h"
#include "allocator/ptmalloc/ptmalloc.h"

namespace faultline::alloc {
namespace {

using Heap = Ptmalloc<Native>;

struct Market {
  explicit Market(Heap& allocator) : heap(allocator) {}
  Heap& heap;
  std::array<std::atomic<Addr>, 512> stalls{};
  std::atomic<unsigned> spoilt = 0, refused = 0;
};

// A block holds its size and, in its last word, its own address.
Addr make(Native& p, Market& m, std::uint64_t size) {
  const Addr block = m.heap.malloc(p, size);
  if (block == 0) {
    ++m.refused;
    return 0;
  }
  p.store(block, size);
  p.store(block + size - 8, block);
  return block;
}

void take_apart(Native& p, Market& m, Addr block) {
  if (block == 0) return;
  const auto size = p.load<std::uint64_t>(block);
  if (p.load<std::uint64_t>(block + size - 8) != block) ++m.spoilt;
  m.heap.free(p, block);
}

void trade(Native& p, unsigned index, void* arg) {
  auto& m = *static_cast<Market*>(arg);
  std::uint64_t state = index + 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t dice = state >> 33;
    const std::uint64_t range = dice % 64 == 0 ? 300'000 : dice % 8 == 0 ? 5'000 : 300;
    const Addr fresh = make(p, m, 16 + (state >> 40) % range / 8 * 8);
    take_apart(p, m, m.stalls[dice % m.stalls.size()].exchange(fresh));
  }
}

// 0: all well; else what went wrong.
int play(const ReleaseProfile& release) {
  const auto process = std::make_unique<NativeProcess>();
  Native p(*process);
  const auto heap = std::make_unique<Heap>(p, release);
  const auto market = std::make_unique<Market>(*heap);
  heap->free(p, heap->malloc(p, 1));
  for (int round = 0; round < 2; ++round) {
    p.run_threads(8, trade, market.get());
    if (!HeapCheck(p, *heap).run().empty()) return 1;
  }
  for (auto& stall : market->stalls) take_apart(p, *market, stall.exchange(0));
  if (!HeapCheck(p, *heap).run().empty()) return 2;
  if (market->spoilt != 0) return 3;
  if (market->refused != 0) return 4;
  if (heap->shared(p, Shared::kMmaps) != 0) return 5;
  return heap->shared(p, Shared::kArenas) > 1 ? 0 : 6;
}

class NativeThreads : public testing::TestWithParam<const char*> {};

// In a child, so that the break is moved by nobody else.
TEST_P(NativeThreads, TradeBlocks) {
  const pid_t child = fork();
  if (child == 0) _exit(play(*find_release(GetParam())));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Releases, NativeThreads,
                         testing::Values("2.23", "2.26", "2.36", "2.39", "2.43-x86",
                                         "2.44"),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (char& c : name)
                             if (c == '.' || c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace faultline::alloc
