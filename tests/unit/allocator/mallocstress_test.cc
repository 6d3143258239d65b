// SPDX-License-Identifier: Apache-2.0
//
// The system calls of LTP's mallocstress, one thread alone, as strace counted them on
// glibc 2.36 with 23.5 GB of memory.
#include <gtest/gtest.h>

#include <vector>

#include "scenarios/workloads/mallocstress.h"
#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {
namespace {

struct Calls {
  std::size_t mmap, munmap, madvise, mprotect, failed_mmap, failed_brk;
  std::uint64_t faults;
  bool operator==(const Calls&) const = default;
};
std::ostream& operator<<(std::ostream& os, const Calls& c) {
  return os << c.mmap << " mmap, " << c.munmap << " munmap, " << c.madvise << " madvise, "
            << c.mprotect << " mprotect, " << c.failed_mmap << "/" << c.failed_brk
            << " failed, " << c.faults << " faults";
}

class Stress : public testing::TestWithParam<unsigned> {
 protected:
  Stress() : thread_(b_.os, b_.log) {
    b_.os.largest_map = b_.os.largest_brk = 23'500'000'000;
    b_.malloc(24);
    // The thread's arena: its cache is the first thing that it allocates.
    b_.heap.free(thread_.p, b_.heap.malloc(thread_.p, 24));
    b_.log.clear();
  }
  Calls round() {
    b_.log.clear();
    const std::uint64_t faults = b_.os.faults;
    workloads::mallocstress_round(thread_.p, b_.heap, GetParam(), 50, blocks_, count_);
    using enum SysName;
    return {b_.calls(kMmap),  b_.calls(kMunmap), b_.calls(kMadvise),   b_.calls(kMprotect),
            b_.failed(kMmap), b_.failed(kSbrk),  b_.os.faults - faults};
  }
  std::uint64_t advised() const {
    for (std::size_t i = 0; i < b_.log.size(); ++i)
      if (b_.log[i].name == SysName::kMadvise) return b_.log[i].size;
    return 0;
  }

  Bench b_{"2.36"};
  BenchThread thread_;
  std::vector<Addr> blocks_;
  workloads::MallocstressThread count_;
};

TEST_P(Stress, CallsOfEachRound) {
  struct Expected {
    Calls first, second, later;
    std::uint64_t first_advised, later_advised, blocks;
  };
  // mprotect of the first round: without the one that opened the heap.
  const Expected expected[] = {
      {{25, 25, 1, 2, 3, 1, 0},
       {14, 14, 1, 11, 3, 1, 27},
       {14, 14, 1, 0, 3, 1, 27},
       184'320,
       63'111'168,
       46},
      {{18, 18, 0, 0, 3, 1, 0},
       {10, 10, 0, 8, 3, 1, 0},
       {10, 10, 0, 0, 3, 1, 10},
       0,
       0,
       32},
      {{11, 11, 0, 0, 3, 1, 0}, {6, 6, 0, 5, 3, 1, 0}, {6, 6, 0, 0, 3, 1, 6}, 0, 0, 20},
      {{7, 7, 1, 1, 3, 1, 0}, {4, 4, 0, 3, 3, 1, 0}, {4, 4, 0, 0, 3, 1, 4}, 20'480, 0, 14},
  };
  const Expected& e = expected[GetParam()];
  const auto without_faults = [](Calls c) {
    c.faults = 0;
    return c;
  };
  EXPECT_EQ(without_faults(round()), without_faults(e.first));
  EXPECT_EQ(advised(), e.first_advised);
  EXPECT_EQ(blocks_.size(), e.blocks);
  EXPECT_EQ(without_faults(round()), without_faults(e.second));
  for (int i = 3; i <= 100; ++i) {
    const Calls calls = round();
    EXPECT_EQ(without_faults(calls), without_faults(e.later)) << "round " << i;
    EXPECT_EQ(advised(), e.later_advised);
    EXPECT_EQ(calls.faults, e.later.faults) << "round " << i;
    if (HasFailure()) return;
  }
  EXPECT_EQ(count_.spoilt, 0u);
}

INSTANTIATE_TEST_SUITE_P(Schemes, Stress, testing::Range(0u, 4u));

}  // namespace
}  // namespace faultline::alloc::toy
