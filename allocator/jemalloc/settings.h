// SPDX-License-Identifier: Apache-2.0
//
// What MALLOC_CONF may set, and how unused pages are given back.
//
// Stands for: the opt.* options of jemalloc 3.3.1, with `purge` for what was a build option
// or a patch there, and the decay options of 5.x.
#pragma once

#include <cstdint>

namespace faultline::alloc::je {

// What happens to a dirty run that has to go.
enum class Purge : std::uint8_t {
  kDontneed,  // MADV_DONTNEED (3.3.1 on Linux)
  kFree,      // MADV_FREE (a build option, found by configure)
  kVrange,    // vrange(VOLATILE), and NOVOLATILE before it is used again (the port of 2013)
  kNone       // nothing: dirty pages are kept
};
// When: if there are more dirty pages than a share of the active ones (3.x), or once they
// have been unused for some time (5.x).
enum class PurgeRule : std::uint8_t { kRatio, kDecay };

struct Settings {
  unsigned lg_chunk = 22;
  unsigned narenas = 0;   // 0: four a CPU, one on a single CPU
  int lg_dirty_mult = 3;  // at most one dirty page for so many active ones; -1: no limit
  bool tcache = true;
  unsigned lg_tcache_max = 15;  // largest block in a thread's cache
  bool munmap = false;          // 3.3.1's default on Linux
  Purge purge = Purge::kDontneed;
  PurgeRule rule = PurgeRule::kRatio;
  // Of the decay rule; 0: at once, -1: never.  Dirty runs become muzzy by MADV_FREE and
  // clean by MADV_DONTNEED; without muzzy_decay_ms the former is left out.
  std::int64_t dirty_decay_ms = 10'000, muzzy_decay_ms = 0;
  // Blocks of that size and above have an arena of their own (5.3; 0: they don't).
  std::uint64_t oversize_threshold = std::uint64_t{8} << 20;
  unsigned perturb = 0;
};

}  // namespace faultline::alloc::je
