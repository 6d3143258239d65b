// SPDX-License-Identifier: Apache-2.0
//
// What only glibc's malloc can be asked: trimming, tuning and what it holds.
//
// Stands for: malloc_trim, mallopt, mallinfo, malloc_info, malloc_stats of malloc/malloc.c
// (glibc 2.21-2.44); without mcheck hooks, malloc_get_state and malloc_set_state.
#include <malloc.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "allocator/preload/heap.h"

using faultline::alloc::ArenaInfo;
using faultline::alloc::Param;
using faultline::alloc::Shared;
using namespace faultline::preload;

#pragma GCC visibility push(default)
extern "C" {

int malloc_trim(std::size_t pad) {
  return heap().malloc_trim(here(), pad) ? 1 : 0;
}

int mallopt(int param, int value) {
  return heap().mallopt(here(), static_cast<Param>(param), value);
}

struct mallinfo2 mallinfo2() {
  struct mallinfo2 all {};
  bool main = true;
  heap().for_each_info(here(), [&](const ArenaInfo& a) {
    all.arena += a.system;
    all.ordblks += a.free_chunks + 1;  // and top
    all.smblks += a.fast_chunks;
    all.fsmblks += a.fast_bytes;
    all.fordblks += a.free_bytes + a.fast_bytes + a.top;
    if (main) all.keepcost = a.top;
    main = false;
  });
  all.uordblks = all.arena - all.fordblks;
  all.hblks = heap().shared(here(), Shared::kMmaps);
  all.hblkhd = heap().shared(here(), Shared::kMmappedMem);
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
  heap().for_each_info(here(), [&](const ArenaInfo& a) {
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
               heap().shared(here(), Shared::kMmaps),
               heap().shared(here(), Shared::kMmappedMem));
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
