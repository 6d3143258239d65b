// SPDX-License-Identifier: Apache-2.0
//
// From the library's hooks to system calls, as its own hooks make them under Linux with
// overcommit (ehooks.c, extent_mmap.c, pages.c; 5.3.0): address space is never unmapped
// (opt.retain), commit and decommit do nothing, pages go lazily by MADV_FREE and by force
// with MADV_DONTNEED.
//
// The purge policy changes who refuses:
//   dontneed  as above; MADV_FREE comes only with muzzy_decay_ms
//   free      no force: what has to go at once goes by MADV_FREE
//   vrange    decommit is vrange(VOLATILE), commit before new use is vrange(NOVOLATILE)
//   none      all is refused: the pages stay as they are
#pragma once

#include <bit>

#include "allocator/jemalloc53/jemalloc53_class.h"

namespace faultline::alloc {

// The first mapping comes to lie in the middle of the window.
template <Platform P>
bool Jemalloc53<P>::fits(Addr a, std::uint64_t size) {
  if (!shifted_) {
    shift_ = window_ + 2 * kBiasUnit - (a & ~(kBiasUnit - 1));
    shifted_ = true;
  }
  const std::uint64_t start = inward(a);
  return start >= window_ && size <= je53::kWindow &&
         start - window_ <= je53::kWindow - size;
}

// pages_map(): a mapping of that alignment, if need be the middle of a larger one.
template <Platform P>
Addr Jemalloc53<P>::map(P& p, Addr at, std::uint64_t size, std::uint64_t alignment) {
  p.cycles(je53::costs::kMap);
  const auto os_map = [&](Addr hint, std::uint64_t bytes) -> Addr {
    const SysValue got = p.mmap(hint, bytes, sys::kProtRead | sys::kProtWrite,
                                sys::kMapPrivate | sys::kMapAnonymous | sys::kMapNoreserve);
    return got.ok() ? got.value : 0;
  };
  Addr got = os_map(at, size);
  if (got == 0) return 0;
  if (at != 0 && got != at) {
    p.munmap(got, size);
    return 0;
  }
  if ((got & (alignment - 1)) == 0) return got;
  p.munmap(got, size);
  const std::uint64_t more = size + alignment - je53::kPage;
  got = os_map(0, more);
  if (got == 0) return 0;
  const Addr start = round_up(got, alignment);
  if (start != got) p.munmap(got, start - got);
  if (start + size != got + more) p.munmap(start + size, got + more - start - size);
  return start;
}

// pages_purge_forced(), pages_purge_lazy().
template <Platform P>
bool Jemalloc53<P>::give_back(Arena& arena, std::uint64_t start, std::uint64_t length,
                              int advice) {
  if (arena.owner->dying_) return true;
  return outside(arena, [&](Jemalloc53& self, P& p) {
    const Frame frame(p, je::places::kPurge);
    p.cycles(je53::costs::kPurge);
    const bool refused = p.madvise(self.outward(start), length, advice) != 0;
    if (!refused && advice == sys::kMadvDontneed) self.mark_clean(start, length);
    return refused;
  });
}

// True if all of it is marked so now.  From v8 on the call says how many bytes it did.
template <Platform P>
bool Jemalloc53<P>::vrange_all(P& p, std::uint64_t start, std::uint64_t length, int mode) {
  constexpr unsigned kCountsBytes = 8;
  const SysValue answer = p.vrange(outward(start), length, mode, 0);
  return answer.ok() && (p.facts().vrange_version < kCountsBytes || answer.value == length);
}

template <Platform P>
bool Jemalloc53<P>::set_volatile(Arena& arena, std::uint64_t start, std::uint64_t length) {
  if (arena.owner->dying_) return true;
  return outside(arena, [&](Jemalloc53& self, P& p) {
    const Frame frame(p, je::places::kPurge);
    p.cycles(je53::costs::kPurge);
    return !self.vrange_all(p, start, length, sys::kVrangeVolatile);
  });
}

// Until it succeeds; whether the kernel took any of it is of no interest.
template <Platform P>
bool Jemalloc53<P>::set_nonvolatile(Arena& arena, std::uint64_t start,
                                    std::uint64_t length) {
  return growing(arena, [&](Jemalloc53& self, P& p) {
    while (!self.vrange_all(p, start, length, sys::kVrangeNovolatile)) {
    }
    return false;
  });
}

template <Platform P>
je53::Hooks Jemalloc53<P>::hooks() {
  using je53::Hooks;
  Hooks h{};
  h.alloc = [](Hooks* hooks, void* at, std::size_t size, std::size_t alignment, bool* zero,
               bool* commit, unsigned) -> void* {
    Arena& arena = of(hooks);
    const Addr got = growing(arena, [&](Jemalloc53& self, P& p) {
      const Addr wanted = at == nullptr ? 0 : self.outward(number(at));
      const Addr start = self.map(p, wanted, size, alignment);
      if (start == 0 || self.fits(start, size)) return start;
      p.munmap(start, size);
      return Addr{0};
    });
    if (got == 0) return nullptr;
    // The library writes zeroes where it isn't told that they are there.
    *zero = true;
    *commit = true;
    arena.owner->mark_clean(arena.owner->inward(got), size);
    return std::bit_cast<void*>(arena.owner->inward(got));
  };
  h.dalloc = [](Hooks* hooks, void*, std::size_t, bool, unsigned) {
    return !of(hooks).owner->dying_;
  };
  h.destroy = [](Hooks*, void*, std::size_t, bool, unsigned) {};
  h.commit = [](Hooks* hooks, void* at, std::size_t, std::size_t offset, std::size_t length,
                unsigned) {
    return of(hooks).owner->settings_.purge == je::Purge::kVrange &&
           set_nonvolatile(of(hooks), number(at) + offset, length);
  };
  h.decommit = [](Hooks* hooks, void* at, std::size_t, std::size_t offset,
                  std::size_t length, unsigned) {
    return of(hooks).owner->settings_.purge != je::Purge::kVrange ||
           set_volatile(of(hooks), number(at) + offset, length);
  };
  h.purge_lazy = [](Hooks* hooks, void* at, std::size_t, std::size_t offset,
                    std::size_t length, unsigned) {
    const je::Purge policy = of(hooks).owner->settings_.purge;
    return policy == je::Purge::kNone || policy == je::Purge::kVrange ||
           give_back(of(hooks), number(at) + offset, length, sys::kMadvFree);
  };
  h.purge_forced = [](Hooks* hooks, void* at, std::size_t, std::size_t offset,
                      std::size_t length, unsigned) {
    const je::Purge policy = of(hooks).owner->settings_.purge;
    return policy != je::Purge::kDontneed ||
           give_back(of(hooks), number(at) + offset, length, sys::kMadvDontneed);
  };
  h.split = [](Hooks*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) {
    return false;
  };
  h.merge = [](Hooks*, void*, std::size_t, void*, std::size_t, bool, unsigned) {
    return false;
  };
  return h;
}

}  // namespace faultline::alloc
