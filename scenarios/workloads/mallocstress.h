// SPDX-License-Identifier: Apache-2.0
//
// LTP's mallocstress: many threads that each allocate blocks of growing size, write one
// word to each, and free them in the order of allocation.
//
// A thread follows one of four series of sizes: Fibonacci from 8 and 5 (scheme 0), or
// powers of 2, 3 or 5 times 8.  A round ends when malloc refuses a block, after `maxptrs`
// blocks, or when the size would wrap.  It sleeps (usleep(0), a real sleep of the timer
// slack) after each malloc, each free and each round.
//
// Stands for: testcases/kernel/mem/mtest07/mallocstress.c of LTP, February 2018, with 60
// threads, 100 rounds, 50 blocks, built with SPEW_SIGNALS; written anew.  All threads are
// released together, as its futex checkpoint does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/platform.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace mallocstress_places {
inline constexpr alloc::Place kAllocMem{"alloc_mem"};
inline constexpr alloc::Place kAllocateFree{"allocate_free"};
}  // namespace mallocstress_places

// The sizes that one thread asks for.
class SizeSeries {
 public:
  static constexpr unsigned kSchemes = 4;
  explicit SizeSeries(unsigned scheme) : scheme_(scheme % kSchemes) {}
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Goes to the next size; false if it wrapped round.
  bool advance();

 private:
  static constexpr std::uint64_t kFactor[kSchemes] = {0, 2, 3, 5};
  unsigned scheme_;
  std::uint64_t size_ = sizeof(std::uint64_t);
  std::uint64_t previous_ = 5;
};

inline bool SizeSeries::advance() {
  std::uint64_t next = 0;
  const bool wrapped = scheme_ == 0
                           ? __builtin_add_overflow(size_, previous_, &next)
                           : __builtin_mul_overflow(size_, kFactor[scheme_], &next);
  previous_ = size_;
  size_ = next;
  return !wrapped;
}

// One thread's share of the program, and what it counted.  Each thread has its own.
struct MallocstressThread {
  std::uint64_t mallocs = 0, refused = 0, frees = 0, spoilt = 0;
};

// One round: allocate until refused, then check and free, smallest block first.
template <alloc::Platform P, typename Allocator>
void mallocstress_round(P& p, Allocator& allocator, unsigned scheme, std::uint64_t maxptrs,
                        std::vector<alloc::Addr>& blocks, MallocstressThread& count) {
  const typename P::Frame frame(p, mallocstress_places::kAllocateFree);
  blocks.clear();
  SizeSeries series(scheme);
  for (std::uint64_t i = 0; i < maxptrs; ++i) {
    const alloc::Addr block = allocator.malloc(p, series.size());
    ++count.mallocs;
    if (block == 0) {
      ++count.refused;
      break;
    }
    p.template store<std::uint64_t>(block, i);
    const bool wrapped = !series.advance();
    if (wrapped) break;  // as the program does: this last block is not freed
    blocks.push_back(block);
    p.usleep(0);
  }
  for (std::uint64_t i = 0; i < blocks.size(); ++i) {
    if (p.template load<std::uint64_t>(blocks[i]) != i) ++count.spoilt;
    allocator.free(p, blocks[i]);
    ++count.frees;
    p.usleep(0);
  }
  p.usleep(0);
}

template <alloc::ThreadedPlatform P, typename Allocator>
Outcome mallocstress(P& p, Allocator& allocator, const Params& params, Progress& progress) {
  struct Shared {
    Allocator& allocator;
    std::uint64_t loops, maxptrs;
    Progress& progress;
    std::vector<MallocstressThread> threads;
  } shared{allocator, params.bytes("loops"), params.bytes("maxptrs"), progress, {}};
  const auto threads = static_cast<unsigned>(params.number("threads"));
  shared.threads.resize(threads);
  progress.total = threads * shared.loops;

  p.run_threads(
      threads,
      [](P& thread_platform, unsigned index, void* arg) {
        auto& s = *static_cast<Shared*>(arg);
        const typename P::Frame frame(thread_platform, mallocstress_places::kAllocMem);
        std::vector<alloc::Addr> blocks;
        for (std::uint64_t loop = 0; loop < s.loops; ++loop) {
          mallocstress_round(thread_platform, s.allocator, index % SizeSeries::kSchemes,
                             s.maxptrs, blocks, s.threads[index]);
          s.progress.done.fetch_add(1, std::memory_order_relaxed);
        }
      },
      &shared);

  Outcome out;
  std::uint64_t spoilt = 0;
  for (const MallocstressThread& t : shared.threads) {
    out.counts["mallocs"] += t.mallocs;
    out.counts["refused-mallocs"] += t.refused;
    out.counts["frees"] += t.frees;
    spoilt += t.spoilt;
  }
  if (spoilt != 0)
    out.failure = std::to_string(spoilt) + " blocks lost what was written to them";
  return out;
}

}  // namespace faultline::workloads
