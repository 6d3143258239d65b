// SPDX-License-Identifier: Apache-2.0
//
// The allocator's functions as profiles name them: perf's names on a glibc with symbols.
#pragma once

#include "allocator/platform.h"

namespace faultline::alloc::places {

inline constexpr Place kMalloc{"malloc"}, kFree{"free"}, kCalloc{"calloc"},
    kRealloc{"realloc"}, kMemalign{"memalign"}, kMallocTrim{"malloc_trim"},
    kIntMalloc{"_int_malloc"}, kIntFree{"_int_free"}, kIntRealloc{"_int_realloc"},
    kIntMemalign{"_int_memalign"}, kSysmalloc{"sysmalloc"}, kTcacheInit{"tcache_init"},
    kTcacheShutdown{"tcache_thread_shutdown"}, kConsolidate{"malloc_consolidate"},
    kSystrim{"systrim"}, kHeapTrim{"heap_trim"}, kNewHeap{"new_heap"},
    kGrowHeap{"grow_heap"}, kArenaGet2{"arena_get2"}, kMunmapChunk{"munmap_chunk"},
    kMremapChunk{"mremap_chunk"};

}  // namespace faultline::alloc::places
