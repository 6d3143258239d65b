// SPDX-License-Identifier: Apache-2.0
//
// The one allocator of a process that runs under LD_PRELOAD, and each thread's view of it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

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

// Raw storage, so that no constructor or destructor runs when the library is loaded or the
// program ends: others may allocate before and after.
template <typename T>
struct Storage {
  alignas(T) std::byte bytes[sizeof(T)];
  T& get() { return *std::launder(reinterpret_cast<T*>(bytes)); }
};

struct ThreadSlot {
  Storage<alloc::Native> native;
  bool ready;     // the allocator and this thread's platform are made
  bool starting;  // this thread makes the allocator
  int exits;      // rounds of destructors so far
};

extern constinit __attribute__((tls_model("initial-exec"))) thread_local ThreadSlot t_slot;
extern constinit Storage<Heap> g_heap;
extern constinit std::array<std::byte, 64 << 10> g_start_up;

// Makes what is missing; errno is left alone.
void make_ready();

// The calling thread's platform, and the process's heap: after it.  Made at the first call.
[[nodiscard]] inline alloc::Native& here() {
  if (!t_slot.ready) [[unlikely]]
    make_ready();
  return t_slot.native.get();
}
[[nodiscard]] inline Heap& heap() {
  return g_heap.get();
}
// While the allocator is being made libc may ask for memory itself: a few bytes from a
// static area, never freed.
[[nodiscard]] inline bool starting() {
  return !t_slot.ready && t_slot.starting;
}
[[nodiscard]] void* start_up_memory(std::size_t bytes, std::size_t alignment);
[[nodiscard]] inline bool is_start_up_memory(const void* memory) {
  return std::bit_cast<std::uintptr_t>(memory) -
             std::bit_cast<std::uintptr_t>(g_start_up.data()) <
         g_start_up.size();
}

}  // namespace faultline::preload
