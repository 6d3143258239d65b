// SPDX-License-Identifier: Apache-2.0
//
// Many simulated threads that make random memory calls on the same few ranges, so that they
// meet in every lock.  After every second call of each thread all of them have ended, and
// the kernel's invariants are checked; what holds in the middle of calls, too, and the
// order of locks, after each call.
#pragma once

#include <cstdint>
#include <string>

namespace faultline::property {

struct StressPlan {
  std::string profile, preset;
  unsigned threads = 2;
  unsigned calls = 1000;  // of all threads together
  std::uint64_t seed = 1;
};

struct StressResult {
  std::uint64_t calls = 0, failed = 0, signals = 0, forks = 0;
  std::uint64_t faults = 0, contended = 0;  // waits for mmap_lock, all told
  std::size_t lock_pairs = 0;               // orders seen by the checks of lock_order.h
  std::uint64_t fingerprint = 0;            // of all answers and of the time at the end
};

// Aborts where an invariant or the order of locks is violated.
[[nodiscard]] StressResult run_stress(const StressPlan& plan);

}  // namespace faultline::property
