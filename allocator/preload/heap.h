// SPDX-License-Identifier: Apache-2.0
//
// The one allocator of a process that runs under LD_PRELOAD, and each thread's view of it.
#pragma once

#include "allocator/platform/native.h"
#ifdef FAULTLINE_PRELOAD_JEMALLOC
#include "allocator/jemalloc/jemalloc.h"
#else
#include "allocator/ptmalloc/ptmalloc.h"
#endif

namespace faultline::preload {

#ifdef FAULTLINE_PRELOAD_JEMALLOC
using Heap = alloc::Jemalloc<alloc::Native>;
#else
using Heap = alloc::Ptmalloc<alloc::Native>;
#endif
// Makes it at `where`, as the environment says; allocates nothing.
void make_heap_at(void* where, alloc::Native& first_thread);

// The calling thread's platform; made at its first call.
[[nodiscard]] alloc::Native& here();
// Made at the first call in the process.
[[nodiscard]] Heap& heap();
// While the allocator is being made libc may ask for memory itself: a few bytes from a
// static area, never freed.
[[nodiscard]] bool starting();
[[nodiscard]] void* start_up_memory(std::size_t bytes, std::size_t alignment);
[[nodiscard]] bool is_start_up_memory(const void* memory);

}  // namespace faultline::preload
