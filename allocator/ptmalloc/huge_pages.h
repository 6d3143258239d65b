// SPDX-License-Identifier: Apache-2.0
//
// What glibc.malloc.hugetlb (or the RFC's thp_pagesize) makes of the machine's huge pages:
// decided once, at start-up.
//
// Stands for: the end of ptmalloc_init (malloc/malloc.c, malloc/arena.c),
// __malloc_thp_mode, __malloc_default_thp_pagesize, __malloc_hugepage_config
// (sysdeps/unix/sysv/linux/malloc-hugepages.c), glibc 2.35-2.44.  Model: the files of /sys
// and /proc are known, so opening them makes no system calls.
#pragma once

#include <cstdint>

#include "allocator/platform.h"
#include "allocator/ptmalloc/release.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

struct HugePages {
  // mp_.thp_pagesize: the break and (from 2.43) thread heaps grow to multiples of it; 0:
  // not at all.
  std::uint64_t thp_pagesize = 0;
  bool advises = false;  // and what is as large is advised with MADV_HUGEPAGE
  // mp_.hp_pagesize: large blocks, the main arena and heaps are mapped in pages of that
  // size out of the pool; 0: not at all.
  std::uint64_t hp_pagesize = 0;
  unsigned hp_flags = 0;    // MAP_HUGETLB with the size
  bool hp_arenas = false;   // arenas, too: not with pages larger than a heap (2.42)
  std::uint64_t heap_max;   // HEAP_MAX_SIZE
  std::uint64_t heap_min;   // HEAP_MIN_SIZE
  std::uint64_t heap_unit;  // thread heaps without MAP_HUGETLB grow by multiples of it
};

[[nodiscard]] HugePages huge_pages(const PlatformFacts& facts,
                                   const ReleaseProfile& release, const Settings& settings);

}  // namespace faultline::alloc
