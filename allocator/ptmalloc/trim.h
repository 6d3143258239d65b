// SPDX-License-Identifier: Apache-2.0
//
// Giving memory back on request and from the end of the main heap; and mallopt.
//
// Stands for: systrim, mtrim, malloc_trim, mallopt, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// Whole pages that hold nothing.
template <Platform P>
void Ptmalloc<P>::give_back(P& p, Addr start, std::uint64_t bytes) {
  if (release_.give_back == GiveBack::kDontneed ||
      !p.vrange(start, bytes, sys::kVrangeVolatile, sys::kVrangePartial).ok())
    p.madvise(start, bytes, sys::kMadvDontneed);
}

// Before they are used again; what was lost reads as zeros.
template <Platform P>
void Ptmalloc<P>::take_back(P& p, Addr start, std::uint64_t bytes) {
  const Addr first = align_down(start, page(p));
  const std::uint64_t whole = align_up(start + bytes, page(p)) - first;
  SysValue answer;
  do {
    answer = p.vrange(first, whole, sys::kVrangeNovolatile, sys::kVrangePartial);
  } while (answer.error == sys::kENOMEM);
}

// Of a free chunk the first `nb` bytes are used, and the head and links of what is left are
// written.  A rest of less than two pages is too small to be found here later.
template <Platform P>
void Ptmalloc<P>::take_back_chunk(P& p, Addr c, std::uint64_t size, std::uint64_t nb) {
  constexpr std::uint64_t kHeadAndLinks = 48;
  if (!marked_chunks_.load(std::memory_order_relaxed)) [[likely]]
    return;
  const bool all = size - nb < 2 * page(p);
  take_back(p, c, all ? size : nb + kHeadAndLinks);
}

// Lowers the break so that top keeps `pad` and less than a page (or huge page) more.
template <Platform P>
bool Ptmalloc<P>::systrim(const Arena<P>& av, std::uint64_t pad) {
  if (huge_.hp_arenas) return false;  // there is no break
  P& p = av.m.p;
  const Frame frame(p, places::kSystrim);
  const Addr top = av.top();
  const std::uint64_t size = av.m.size(top);
  if (size <= kMinSize + 1 + pad) return false;
  const std::uint64_t unit = huge_.thp_pagesize != 0 ? huge_.thp_pagesize : page(p);
  const std::uint64_t extra = align_down(size - kMinSize - 1 - pad, unit);
  if (extra == 0) return false;
  const SysValue before = p.sbrk(0);
  if (!before.ok() || before.value != top + size) return false;  // someone else's break
  p.sbrk(-static_cast<std::int64_t>(extra));
  const std::uint64_t released = before.value - p.sbrk(0).value;
  if (released == 0) return false;
  av.add_system_mem(0 - released);
  av.m.set_head(top, (size - released) | kPrevInuse);
  return true;
}

template <Platform P>
bool Ptmalloc<P>::malloc_trim(P& p, std::uint64_t pad) {
  const Frame frame(p, places::kMallocTrim);
  if (!initialised_.load(std::memory_order_acquire)) init(p);
  bool released = false;
  Addr at = main_;
  do {
    const Arena<P> av = arena(p, at);
    lock(p, av);
    released |= trim_arena(av, pad);
    p.unlock(av.lock());
    at = p.atomic_load(at + layout_.next);
  } while (at != main_);
  return released;
}

// mtrim: the whole pages inside each free chunk, past the header and links; then the end of
// the main heap.  What was given back before is given back again: nothing remembers it.
template <Platform P>
bool Ptmalloc<P>::trim_arena(const Arena<P>& av, std::uint64_t pad) {
  constexpr std::uint64_t kKept = 48;  // header, links, links by size
  P& p = av.m.p;
  const Chunks<P>& m = av.m;
  if (release_.fastbins) consolidate(av);
  bool released = false;
  const unsigned smallest = bin_index(page(p));
  for (unsigned i = kUnsorted; i < kBins;
       i = i == kUnsorted ? std::max(i + 1, smallest) : i + 1) {
    for (Addr c = m.bk(av.bin(i)); c != av.bin(i); c = m.bk(c)) {
      const Addr start = align_up(c + kKept, page(p));
      const Addr end = c + m.size(c);
      if (end < start + page(p)) continue;
      give_back(p, start, align_down(end - start, page(p)));
      if (release_.give_back == GiveBack::kVrange) marked_chunks_ = true;
      released = true;
    }
  }
  return (av.is_main() && systrim(av, pad)) || released;
}

template <Platform P>
int Ptmalloc<P>::mallopt(P& p, Param param, std::int64_t value) {
  if (!initialised_.load(std::memory_order_acquire)) init(p);
  const Arena<P> main = arena(p, main_);
  lock(p, main);
  if (release_.fastbins) consolidate(main);
  const bool done = set_parameter(p, param, value);
  p.unlock(main.lock());
  return done ? 1 : 0;
}

template <Platform P>
bool Ptmalloc<P>::set_parameter(P& p, Param param, std::int64_t value) {
  const auto bytes = static_cast<std::uint64_t>(value);
  const auto threshold = [&](Shared word) {
    p.atomic_store(at(word), bytes);
    settings_.dynamic_threshold = false;
  };
  switch (param) {
    case Param::kMxfast:
      if (bytes > 160) return false;
      if (release_.fastbins)
        max_fast_ = bytes == 0 ? 16 : align_down(bytes + kWord, kMallocAlignment);
      return true;
    case Param::kTrimThreshold:
      threshold(Shared::kTrimThreshold);
      return true;
    case Param::kMmapThreshold:
      if (bytes > kMmapThresholdMax) return false;
      threshold(Shared::kMmapThreshold);
      return true;
    case Param::kTopPad:
      settings_.top_pad = bytes;
      settings_.dynamic_threshold = false;
      return true;
    case Param::kMmapMax:
      settings_.mmap_max = bytes;
      settings_.dynamic_threshold = false;
      return true;
    case Param::kPerturb:
      settings_.perturb = static_cast<unsigned>(value & 0xff);
      return true;
    case Param::kArenaTest:
      settings_.arena_test = bytes;
      return value > 0;
    case Param::kArenaMax:
      settings_.arena_max = bytes;
      return value > 0;
    case Param::kCheckAction:
      return true;
  }
  return true;
}

}  // namespace faultline::alloc
