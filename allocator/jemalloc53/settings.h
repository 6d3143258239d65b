// SPDX-License-Identifier: Apache-2.0
//
// What a scenario may set of jemalloc 5.3, and what its own work costs.
#pragma once

#include <cstdint>

#include "allocator/jemalloc/settings.h"

namespace faultline::alloc::je53 {

// Instructions of the library's own paths.  Source: callgrind over Debian's libjemalloc2
// 5.3.0-1, x86-64, one thread, differences of runs: malloc(64)+free 77; 1000 malloc(64) and
// then their frees 183 a pair, without tcache 752; malloc(512 KiB)+free 2768 from dirty
// pages, 6336 when each free purges (3568 of that for a purge and for taking the extent
// from the retained ones).  Halves of a pair are taken as equal.
// Model: filling and flushing a cache costs nothing beside its hits, since the library
// doesn't tell.
namespace costs {
inline constexpr std::uint64_t kCached = 38, kSmall = 376, kLarge = 1384, kPurge = 3568,
                               kMap = 3568, kDecay = 300, kLockPair = 24;
}  // namespace costs

}  // namespace faultline::alloc::je53
