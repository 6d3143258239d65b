// SPDX-License-Identifier: Apache-2.0
//
// A process that fills more memory than its share and gives it back, again and again; run
// with several processes, so that together they need more than there is.
//
// Stands for: the tests of the MADV_FREE series of 24 Feb 2015 (linux-mm, "mm: throttle
// MADV_FREE" and "mm: support MADV_FREE in swapless system"): 12 processes, each 5 times
// memset of 512 MB and the advice; the variant without swap sleeps a second between;
// written anew.
#pragma once

#include <cstdint>
#include <string>

#include "scenarios/workloads/give_back.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace madv_free_places {
inline constexpr alloc::Place kMemset{"memset"};
}  // namespace madv_free_places

template <alloc::ThreadedPlatform P>
Outcome madv_free_pressure(P& p, const Params& params, Progress& progress) {
  const std::uint64_t bytes = params.bytes("block"), rounds = params.bytes("rounds"),
                      pause = params.bytes("pause_ms");
  const GiveBack<P> policy(p, params.choice("policy"));
  progress.total = rounds;
  Outcome out;
  const alloc::SysValue area =
      p.mmap(0, bytes, alloc::sys::kProtRead | alloc::sys::kProtWrite,
             alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
  if (!area.ok()) {
    out.failure = "the block could not be mapped";
    return out;
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    out.counts["blocks-lost"] += policy.take(p, area.value, bytes) ? 1 : 0;
    {
      const typename P::Frame frame(p, madv_free_places::kMemset);
      p.set(area.value, 0, bytes);
    }
    if (!policy.give(p, area.value, bytes)) out.failure = "the advice was refused";
    ++out.counts["rounds"];
    if (pause != 0) p.usleep(pause * 1000);
    progress.done.fetch_add(1, std::memory_order_relaxed);
  }
  return out;
}

}  // namespace faultline::workloads
