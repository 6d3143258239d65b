// SPDX-License-Identifier: Apache-2.0
//
// The allocator's functions as profiles name them.
#pragma once

#include "allocator/platform.h"

namespace faultline::alloc::je::places {

inline constexpr Place kMalloc{"malloc"}, kFree{"free"}, kCalloc{"calloc"},
    kRealloc{"realloc"}, kMemalign{"memalign"}, kTcacheFill{"tcache_alloc_small_hard"},
    kTcacheFlush{"tcache_bin_flush"}, kRunAlloc{"arena_run_alloc"},
    kRunDalloc{"arena_run_dalloc"}, kPurge{"arena_purge"}, kChunkAlloc{"chunk_alloc"},
    kChunkDealloc{"chunk_dealloc"}, kHugeMalloc{"huge_malloc"}, kHugeDalloc{"huge_dalloc"},
    kArenasExtend{"arenas_extend"};

}  // namespace faultline::alloc::je::places
