// SPDX-License-Identifier: Apache-2.0
//
// Threads that fill blocks and give each back at once: the micro test of the fourth version
// of the volatile-range patches.
//
// Each thread maps one area and goes over its blocks round after round: takes the block,
// writes all of it, gives it back.  With MADV_DONTNEED every page faults anew in every
// round; with MADV_FREE or volatile ranges only in the first.
//
// Stands for: the test program of M. Kim's RFC v4 (linux-mm, 18 Dec 2012): 80 MB a thread,
// 100 rounds over 10 blocks of 8 MB; written anew.  Model: threads are not pinned; with as
// many of them as CPUs they stay where they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/workloads/give_back.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace vrange_micro_places {
inline constexpr alloc::Place kThread{"thread_func"};
inline constexpr alloc::Place kMemset{"memset"};
}  // namespace vrange_micro_places

template <alloc::ThreadedPlatform P>
Outcome vrange_micro(P& p, const Params& params, Progress& progress) {
  struct Shared {
    std::uint64_t blocks, block, rounds;
    GiveBack<P> policy;
    Progress& progress;
    std::vector<std::uint64_t> lost, refused;  // by thread
  } shared{params.bytes("blocks"),
           params.bytes("block"),
           params.bytes("rounds"),
           GiveBack<P>(p, params.choice("policy")),
           progress,
           {},
           {}};
  const auto threads = static_cast<unsigned>(params.number("threads"));
  shared.lost.resize(threads);
  shared.refused.resize(threads);
  progress.total = threads * shared.rounds;

  p.run_threads(
      threads,
      [](P& t, unsigned index, void* arg) {
        auto& s = *static_cast<Shared*>(arg);
        const typename P::Frame frame(t, vrange_micro_places::kThread);
        const alloc::SysValue area =
            t.mmap(0, s.blocks * s.block, alloc::sys::kProtRead | alloc::sys::kProtWrite,
                   alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
        if (!area.ok()) {
          ++s.refused[index];
          return;
        }
        for (std::uint64_t round = 0; round < s.rounds; ++round) {
          for (std::uint64_t i = 0; i < s.blocks; ++i) {
            const alloc::Addr block = area.value + i * s.block;
            s.lost[index] += s.policy.take(t, block, s.block) ? 1 : 0;
            {
              const typename P::Frame set(t, vrange_micro_places::kMemset);
              t.set(block, 0, s.block);
            }
            s.refused[index] += s.policy.give(t, block, s.block) ? 0 : 1;
          }
          s.progress.done.fetch_add(1, std::memory_order_relaxed);
        }
      },
      &shared);

  Outcome out;
  std::uint64_t refused = 0;
  for (const std::uint64_t n : shared.lost) out.counts["blocks-lost"] += n;
  for (const std::uint64_t n : shared.refused) refused += n;
  out.counts["blocks-filled"] = threads * shared.rounds * shared.blocks;
  if (refused != 0) out.failure = std::to_string(refused) + " calls were refused";
  return out;
}

}  // namespace faultline::workloads
