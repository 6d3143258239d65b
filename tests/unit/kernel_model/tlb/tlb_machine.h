// SPDX-License-Identifier: Apache-2.0
//
// The toy machine with a small TLB: 4 entries in the first level, 16 in 4 ways in the
// second; 4 KiB pages and huge pages of 32 KiB; a walk cache of 2 entries.
#pragma once

#include "kernel_model/tlb/tlb.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {

using namespace time_literals;

inline arch::Profile tlb_profile(unsigned cpus = 4) {
  arch::Profile p = toy_profile(cpus);
  p.tlb = {
      {.name = "L1", .level = 1, .entries = 4, .ways = 4, .page_sizes = {4096, 32768}},
      {.name = "L2", .level = 2, .entries = 16, .ways = 4, .page_sizes = {4096, 32768}}};
  p.walk_cache = {.entries = 2, .ways = 2};
  p.costs.tlb_l2_hit = 10_ns;
  p.costs.tlb_walk_level = 30_ns;
  p.costs.tlb_miss_walk = 100_ns;
  p.tlb_model = true;
  return p;
}

inline KernelConfig tlb_config(ThpEnabled thp = ThpEnabled::kNever) {
  KernelConfig config = toy_config();
  config.thp_enabled = thp;
  config.khugepaged_run = false;
  return config;
}

struct TlbMachine : ToyMachine {
  explicit TlbMachine(const arch::Profile& profile = tlb_profile(),
                      ThpEnabled thp = ThpEnabled::kNever)
      : ToyMachine(profile, tlb_config(thp)) {}

  const TlbStats& stats() { return kernel.tlbs()->stats(process()); }
  // What the counters rose by while `body` ran.
  template <typename Body>
  TlbStats during(Body body) {
    const TlbStats before = stats();
    body();
    TlbStats gone = stats();
    gone.l1_misses -= before.l1_misses;
    gone.l1_read_misses -= before.l1_read_misses;
    gone.walks -= before.walks;
    gone.read_walks -= before.read_walks;
    gone.vain_walks -= before.vain_walks;
    gone.flushes -= before.flushes;
    gone.full_flushes -= before.full_flushes;
    gone.time -= before.time;
    return gone;
  }
  // Reads so many pages, one after the other.
  TlbStats read_pages(Task& t, VirtAddr from, std::uint64_t pages) {
    return during([&] {
      for (std::uint64_t i = 0; i < pages; ++i) read(t, from + i * page());
    });
  }
  void write_pages(Task& t, VirtAddr from, std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i) write(t, from + i * page());
  }
};

}  // namespace faultline::kernel::testing
