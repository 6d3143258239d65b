// SPDX-License-Identifier: Apache-2.0
//
// libfaultline_malloc.so: malloc and its family for any program, by LD_PRELOAD.
//
//   LD_PRELOAD=build/release/libfaultline_malloc.so FAULTLINE_MALLOC=2.43-x86 program
//
// The C functions with their errno over the allocator that also runs in the model.  C++'s
// new and delete come here through libstdc++.
//
// Stands for: the public names of malloc/malloc.c (glibc 2.23-2.44); without mcheck hooks,
// malloc_get_state and malloc_set_state.
#include <malloc.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "allocator/preload/heap.h"

namespace {

using faultline::alloc::Addr;
using faultline::alloc::ArenaInfo;
using faultline::alloc::Native;
using faultline::alloc::Param;
using faultline::alloc::Shared;
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

int malloc_trim(std::size_t pad) {
  Native& p = here();
  return heap().malloc_trim(p, pad) ? 1 : 0;
}

int mallopt(int param, int value) {
  Native& p = here();
  return heap().mallopt(p, static_cast<Param>(param), value);
}

struct mallinfo2 mallinfo2() {
  struct mallinfo2 all {};
  bool main = true;
  Native& p = here();
  heap().for_each_info(p, [&](const ArenaInfo& a) {
    all.arena += a.system;
    all.ordblks += a.free_chunks + 1;  // and top
    all.smblks += a.fast_chunks;
    all.fsmblks += a.fast_bytes;
    all.fordblks += a.free_bytes + a.fast_bytes + a.top;
    if (main) all.keepcost = a.top;
    main = false;
  });
  all.uordblks = all.arena - all.fordblks;
  all.hblks = heap().shared(p, Shared::kMmaps);
  all.hblkhd = heap().shared(p, Shared::kMmappedMem);
  return all;
}

struct mallinfo mallinfo() {
  const struct mallinfo2 all = mallinfo2();
  const auto narrow = [](std::size_t n) { return static_cast<int>(n); };
  return {narrow(all.arena),   narrow(all.ordblks),  narrow(all.smblks),
          narrow(all.hblks),   narrow(all.hblkhd),   narrow(all.usmblks),
          narrow(all.fsmblks), narrow(all.uordblks), narrow(all.fordblks),
          narrow(all.keepcost)};
}

int malloc_info(int options, FILE* file) {
  if (options != 0) return EINVAL;
  ArenaInfo sum;
  unsigned number = 0;
  std::fputs("<malloc version=\"1\">\n", file);
  const auto print = [file](const ArenaInfo& a) {
    std::fprintf(file,
                 "<total type=\"fast\" count=\"%zu\" size=\"%zu\"/>\n"
                 "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n",
                 a.fast_chunks, a.fast_bytes, a.free_chunks, a.free_bytes);
  };
  const auto print_system = [file](const ArenaInfo& a) {
    std::fprintf(file,
                 "<system type=\"current\" size=\"%zu\"/>\n"
                 "<system type=\"max\" size=\"%zu\"/>\n",
                 a.system, a.max_system);
  };
  Native& p = here();
  heap().for_each_info(p, [&](const ArenaInfo& a) {
    std::fprintf(file, "<heap nr=\"%u\">\n", number++);
    print(a);
    print_system(a);
    std::fputs("</heap>\n", file);
    sum.fast_chunks += a.fast_chunks;
    sum.fast_bytes += a.fast_bytes;
    sum.free_chunks += a.free_chunks;
    sum.free_bytes += a.free_bytes;
    sum.system += a.system;
    sum.max_system += a.max_system;
  });
  print(sum);
  std::fprintf(file, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n",
               heap().shared(p, Shared::kMmaps), heap().shared(p, Shared::kMmappedMem));
  print_system(sum);
  std::fputs("</malloc>\n", file);
  return 0;
}

void malloc_stats() {
  const struct mallinfo2 all = mallinfo2();
  std::fprintf(stderr, "system bytes     = %10zu\nin use bytes     = %10zu\n", all.arena,
               all.uordblks);
}

}  // extern "C"
#pragma GCC visibility pop
