// SPDX-License-Identifier: Apache-2.0
//
// Counts and addresses that were measured on real glibc releases (x86-64, strace and pagemap).
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

TEST(MainArena, FirstMallocMovesTheBreakBy33Pages) {
  Bench b("2.36");
  const Addr first = b.malloc(24);
  ASSERT_EQ(b.calls(SysName::kSbrk), 1u);
  EXPECT_EQ(b.log[1].size, 0x21000u);
  EXPECT_EQ(first, b.os.brk_start() + 0x2a0);  // behind the thread's cache
}

TEST(MainArena, FirstMallocOn64KPagesMovesTheBreakBy192K) {
  PlatformFacts facts;
  facts.page_size = 65536;
  Bench b("2.36", facts);
  b.malloc(24);
  EXPECT_EQ(b.log[1].size, 0x30000u);
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

}  // namespace
}  // namespace faultline::alloc::toy
