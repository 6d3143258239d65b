// SPDX-License-Identifier: Apache-2.0
//
// What the arenas hold: mallinfo2 and the sums of malloc_info.
//
// Stands for: int_mallinfo, __libc_mallinfo2, __malloc_info, malloc/malloc.c
// (glibc 2.33-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
ArenaInfo Ptmalloc<P>::info_of(const Arena<P>& av) const {
  const Chunks<P>& m = av.m;
  ArenaInfo info;
  info.system = av.system_mem();
  info.max_system = av.max_system_mem();
  info.top = m.size(av.top());
  if (release_.fastbins)
    for (unsigned i = 0; i < kFastbins; ++i)
      for (Addr c = m.word(av.fastbin(i)); c != 0;) {
        ++info.fast_chunks;
        info.fast_bytes += m.size(c);
        c = m.fd(c);
      }
  for (unsigned i = kUnsorted; i < kBins; ++i)
    for (Addr c = m.bk(av.bin(i)); c != av.bin(i); c = m.bk(c)) {
      ++info.free_chunks;
      info.free_bytes += m.size(c);
    }
  return info;
}

template <Platform P>
template <typename Visit>
void Ptmalloc<P>::for_each_info(P& p, Visit visit) {
  if (!initialised_.load(std::memory_order_acquire)) init(p);
  for_each_arena(p, [&](const Arena<P>& av) {
    lock(p, av);
    const ArenaInfo info = info_of(av);
    p.unlock(av.lock());
    visit(info);
  });
}

}  // namespace faultline::alloc
