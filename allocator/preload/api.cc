// SPDX-License-Identifier: Apache-2.0
//
// libfaultline_malloc.so: malloc and its family for any program, by LD_PRELOAD.
//
//   LD_PRELOAD=build/release/libfaultline_malloc.so FAULTLINE_MALLOC=2.43-x86 program
//
// The C functions with their errno over an allocator that also runs in the model.  C++'s
// new and delete come here through libstdc++.  libfaultline_jemalloc.so is the same over
// the other allocator.
//
// Stands for: the public names that every malloc has (malloc/malloc.c, glibc 2.21-2.44;
// src/jemalloc.c, jemalloc 3.3.1).
#include <malloc.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "allocator/preload/heap.h"

namespace {

using faultline::alloc::Addr;
using faultline::alloc::Native;
using namespace faultline::preload;

constexpr std::size_t kStartUpAlignment = 16;

Addr address(const void* memory) {
  return std::bit_cast<Addr>(memory);
}

// NULL comes with ENOMEM; a success leaves errno alone, as the platform does whatever
// system calls failed on the way.
inline void* result(Addr memory) {
  if (memory == 0) [[unlikely]]
    errno = ENOMEM;
  return std::bit_cast<void*>(memory);
}

bool is_power_of_two(std::size_t n) {
  return std::has_single_bit(n);
}

void* aligned(std::size_t alignment, std::size_t bytes) {
  if (starting()) return start_up_memory(bytes, alignment);
  Native& p = here();
  return result(heap().memalign(p, alignment, bytes));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) {
  if (starting()) [[unlikely]]
    return start_up_memory(bytes, kStartUpAlignment);
  Native& p = here();
  return result(heap().malloc(p, bytes));
}

void free(void* memory) {
  if (memory == nullptr || is_start_up_memory(memory)) return;
  Native& p = here();
  heap().free(p, address(memory));
}

void* calloc(std::size_t count, std::size_t each) {
  if (starting()) [[unlikely]]
    return start_up_memory(count * each, kStartUpAlignment);  // zero from the start
  Native& p = here();
  return result(heap().calloc(p, count, each));
}

void* realloc(void* memory, std::size_t bytes) {
  if (is_start_up_memory(memory)) [[unlikely]] {
    void* const moved = malloc(bytes);
    const auto* const end = static_cast<const std::byte*>(memory) + bytes;
    // What lies behind it in the area is readable, and nobody knows its size.
    if (moved != nullptr && is_start_up_memory(end - 1)) std::memcpy(moved, memory, bytes);
    return moved;
  }
  Native& p = here();
  const Addr moved = heap().realloc(p, address(memory), bytes);
  if (moved == 0 && memory != nullptr && bytes == 0) return nullptr;  // freed
  return result(moved);
}

void* reallocarray(void* memory, std::size_t count, std::size_t each) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(std::bit_ceil(alignment), bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || !is_power_of_two(alignment)) return EINVAL;
  const int saved = errno;
  void* const found = aligned(alignment, bytes);
  errno = saved;  // the answer says it
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}

void* valloc(std::size_t bytes) {
  Native& p = here();
  return result(heap().valloc(p, bytes));
}

void* pvalloc(std::size_t bytes) {
  Native& p = here();
  return result(heap().pvalloc(p, bytes));
}

std::size_t malloc_usable_size(void* memory) {
  if (memory == nullptr || is_start_up_memory(memory)) return 0;
  Native& p = here();
  return heap().malloc_usable_size(p, address(memory));
}

}  // extern "C"
#pragma GCC visibility pop
