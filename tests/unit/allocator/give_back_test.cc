// SPDX-License-Identifier: Apache-2.0
//
// glibc that gives memory back by vrange: as it was posted, which never un-marks what it
// uses again, and done right.
#include <gtest/gtest.h>

#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

constexpr std::uint64_t kBlock = 512_K;

// A thread's heap after the first rounds, in which the block has a mapping of its own.
struct ThreadHeap {
  explicit ThreadHeap(const char* release) : b(release) {
    b.os.has_vrange = true;
    b.free(b.malloc(kBlock));
    thread = std::make_unique<BenchThread>(b.os, b.log);
    const Addr mem = b.heap.malloc(thread->p, kBlock);
    thread->p.set(mem, 1, kBlock);
    b.heap.free(thread->p, mem);
    b.log.clear();
  }
  Bench b;
  std::unique_ptr<BenchThread> thread;
};

TEST(GiveBack, AFreeMarksTheEndOfTheHeapAndAMallocUnmarksIt) {
  ThreadHeap h("2.21-vrange");
  const Addr mem = h.b.heap.malloc(h.thread->p, kBlock);
  h.b.p.set(mem, 1, kBlock);
  h.b.heap.free(h.thread->p, mem);
  ASSERT_EQ(h.b.log.size(), 2u);
  EXPECT_EQ(h.b.calls(SysName::kVrange), 2u);
  EXPECT_EQ(h.b.log[0].extra, static_cast<std::uint64_t>(sys::kVrangeNovolatile));
  EXPECT_EQ(h.b.log[1].extra, static_cast<std::uint64_t>(sys::kVrangeVolatile));
  EXPECT_EQ(h.b.log[1].size, 393'216u);
}

TEST(GiveBack, WithoutVrangeItIsDontneed) {
  ThreadHeap h("2.21");
  const std::uint64_t before = h.b.os.faults;
  const Addr mem = h.b.heap.malloc(h.thread->p, kBlock);  // writes the head of what is left
  h.b.p.set(mem, 1, kBlock);
  EXPECT_EQ(h.b.os.faults - before, 96u);
  h.b.heap.free(h.thread->p, mem);
  ASSERT_EQ(h.b.log.size(), 1u);
  EXPECT_EQ(h.b.calls(SysName::kMadvise), 1u);
  EXPECT_EQ(h.b.log[0].size, 393'216u);
}

// malloc itself writes the head of what is left.
TEST(GiveBackDeathTest, AsPostedWhatIsVolatileIsWritten) {
  ThreadHeap h("2.21-vrange-as-posted");
  EXPECT_DEATH(h.b.heap.malloc(h.thread->p, kBlock), "volatile memory touched");
}

TEST(GiveBack, WhatTrimMarkedIsUnmarkedBeforeItIsCut) {
  Bench b("2.21-vrange");
  b.os.has_vrange = true;
  const Addr low = b.malloc(100_K);
  const Addr guard = b.malloc(64);
  b.p.set(low, 1, 100_K);
  b.free(low);
  b.heap.malloc_trim(b.p, 0);
  EXPECT_EQ(b.calls(SysName::kVrange), 1u);
  const Addr again = b.malloc(50_K);
  EXPECT_EQ(again, low);
  b.p.set(again, 1, 50_K);
  const Addr more = b.malloc(40_K);
  b.p.set(more, 1, 40_K);
  for (const Addr a : {again, more, guard}) b.free(a);
}

}  // namespace
}  // namespace faultline::alloc::toy
