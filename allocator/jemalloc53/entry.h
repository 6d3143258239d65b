// SPDX-License-Identifier: Apache-2.0
//
// The entry points, and which arena and cache a thread uses.
//
// Stands for: arena_choose_hard(), arena_choose_huge(), malloc and its kin (jemalloc.c,
// arena.c; 5.3.0).
#pragma once

#include "allocator/jemalloc53/jemalloc53_class.h"

namespace faultline::alloc {

template <Platform P>
Jemalloc53<P>::Jemalloc53(P& p, const je::Settings& settings)
    : settings_(settings),
      most_arenas_(settings.narenas != 0 ? settings.narenas
                   : p.facts().cpus > 1  ? 4 * p.facts().cpus
                                         : 1),
      window_(je53::take_window()),
      written_(je53::kWindow / je53::kPage) {
  p.set_thread_hooks(thread_hooks_of<P>(*this));
}

// With a call that never ended (its fiber was dropped) the library's locks may be held:
// then its arenas are left as they are.
template <Platform P>
Jemalloc53<P>::~Jemalloc53() {
  dying_ = true;
  if (calls_ != 0) {
    for (auto& arena : arenas_) static_cast<void>(arena.release());
    static_cast<void>(oversize_.release());
    return;
  }
  for (const unsigned cache : caches_) je53::destroy_tcache(cache);
  for (const auto& arena : arenas_) je53::destroy_arena(arena->number);
  if (oversize_) je53::destroy_arena(oversize_->number);
  if (window_ != 0) je53::give_window_back(window_);
}

// The arena of oversized blocks gives back at once what would go some time.
template <Platform P>
typename Jemalloc53<P>::Arena* Jemalloc53<P>::new_arena(P& p, bool oversize) {
  const auto at_once = [&](std::int64_t ms) { return oversize && ms > 0 ? 0 : ms; };
  std::unique_ptr<Arena> arena(new Arena{
      hooks(), this, 0, 0, p.monotonic_ns(), at_once(settings_.dirty_decay_ms),
      at_once(settings_.muzzy_decay_ms), false, typename P::Lock("pac->grow_mtx")});
  const bool made = inside(p, [&] {
    return je53::create_arena(&arena->hooks, arena->born, arena->dirty_decay_ms,
                              arena->muzzy_decay_ms, arena->number);
  });
  if (!made) return nullptr;
  if (oversize)
    oversize_ = std::move(arena);
  else
    arenas_.push_back(std::move(arena));
  return oversize ? oversize_.get() : arenas_.back().get();
}

template <Platform P>
typename Jemalloc53<P>::Arena* Jemalloc53<P>::arena_of_thread(P& p) {
  std::uint64_t& own = p.thread_words().word[kArena];
  if (own != 0) return arenas_[own - 1].get();
  std::size_t choice = 0;
  for (std::size_t i = 1; i < arenas_.size(); ++i)
    if (arenas_[i]->threads < arenas_[choice]->threads) choice = i;
  if (arenas_.empty() || (arenas_[choice]->threads != 0 && arenas_.size() < most_arenas_)) {
    if (new_arena(p, false) != nullptr) choice = arenas_.size() - 1;
    if (arenas_.empty()) return nullptr;
  }
  ++arenas_[choice]->threads;
  own = choice + 1;
  return arenas_[choice].get();
}

template <Platform P>
typename Jemalloc53<P>::Arena* Jemalloc53<P>::arena_for(P& p, std::uint64_t bytes) {
  Arena* const own = arena_of_thread(p);
  if (settings_.oversize_threshold == 0 || bytes < settings_.oversize_threshold) return own;
  return oversize_ ? oversize_.get() : new_arena(p, true);
}

template <Platform P>
int Jemalloc53<P>::cache_of(P& p) {
  if (!settings_.tcache) return je53::kNoTcache;
  std::uint64_t& own = p.thread_words().word[kCache];
  if (own == 0) {
    unsigned cache = 0;
    if (!inside(p, [&] { return je53::create_tcache(cache); })) return je53::kNoTcache;
    caches_.push_back(cache);
    own = cache + std::uint64_t{1};
  }
  return static_cast<int>(own) - 1;
}

template <Platform P>
void Jemalloc53<P>::thread_exit(P& p) {
  ThreadWords& words = p.thread_words();
  if (words.word[kCache] != 0) {
    const auto cache = static_cast<unsigned>(words.word[kCache] - 1);
    words.word[kCache] = 0;
    std::erase(caches_, cache);
    inside(p, [&] {
      je53::destroy_tcache(cache);
      return true;
    });
  }
  if (words.word[kArena] != 0) --arenas_[words.word[kArena] - 1]->threads;
  words.word[kArena] = 0;
}

// arena_decay_tick().  Also with decay times of 0: who frees while another thread purges
// leaves its pages for later.
template <Platform P>
void Jemalloc53<P>::tick(P& p, Arena& arena) {
  constexpr std::uint64_t kTicksPerUpdate = 1000;
  std::uint64_t& ticks = p.thread_words().word[kTicks];
  if (++ticks < kTicksPerUpdate) return;
  ticks = 0;
  decay(p, arena);
}

template <Platform P>
void Jemalloc53<P>::decay(P& p, Arena& arena) {
  constexpr std::int64_t kNsPerMs = 1'000'000, kSteps = 200;
  if (arena.dirty_decay_ms < 0 && arena.muzzy_decay_ms < 0) return;
  p.cycles(je53::costs::kDecay);
  const std::uint64_t now = p.monotonic_ns();
  je53::Clock clock;
  for (const std::int64_t ms : {arena.dirty_decay_ms, arena.muzzy_decay_ms}) {
    if (ms <= 0) continue;
    const auto interval = static_cast<std::uint64_t>(ms * kNsPerMs / kSteps);
    const std::uint64_t steps = (now - arena.born + 1) / interval;
    clock.next[clock.left++] = steps == 0 ? 0 : arena.born - 1 + steps * interval;
  }
  inside(p, [&] {
    je53::decay(arena.number, clock);
    return true;
  });
}

template <Platform P>
void Jemalloc53<P>::wait_for(P& p, Arena& arena) {
  while (arena.in_kernel) {
    p.cycles(je53::costs::kLockPair);
    p.lock(arena.grow);
    p.unlock(arena.grow);
  }
}

template <Platform P>
void Jemalloc53<P>::mark_written(Addr mem, std::uint64_t bytes) {
  const std::uint64_t last = page_of(inward(mem) + bytes - 1);
  for (std::uint64_t i = page_of(inward(mem)); i <= last; ++i)
    if (!written_.contains(i)) written_.insert(i);
}

template <Platform P>
bool Jemalloc53<P>::written(Addr mem, std::uint64_t bytes) const {
  const std::uint64_t end = page_of(inward(mem) + bytes - 1) + 1;
  return written_.next(page_of(inward(mem)), end) < end;
}

template <Platform P>
void Jemalloc53<P>::mark_clean(std::uint64_t start, std::uint64_t length) {
  const std::uint64_t end = page_of(start) + length / je53::kPage;
  for (std::uint64_t i = written_.next(page_of(start), end); i < end;
       i = written_.next(i, end))
    written_.erase(i);
}

template <Platform P>
Addr Jemalloc53<P>::allocate(P& p, std::uint64_t bytes, unsigned lg_alignment, bool zero) {
  // The smallest size whose blocks are runs of pages.
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 62, kLargeMin = 4 * je53::kPage;
  if (bytes > kLargest || window_ == 0) return 0;
  if (bytes == 0) bytes = 1;
  Arena* const arena = arena_for(p, bytes);
  if (arena == nullptr) return 0;
  const int cache = cache_of(p);
  const std::uint64_t size = je53::size_class(bytes, je53::flags(0, cache, lg_alignment));
  if (size == 0) return 0;
  const bool cached = cache != je53::kNoTcache && size <= je53::kTcacheMax;
  p.cycles(cached              ? je53::costs::kCached
           : size >= kLargeMin ? je53::costs::kLarge
                               : je53::costs::kSmall);
  wait_for(p, *arena);
  const std::uint64_t got = inside(p, [&] {
    return je53::allocate(bytes, je53::flags(arena->number, cache, lg_alignment));
  });
  if (got == 0) return 0;
  const Addr mem = outward(got);
  if (zero && (size < kLargeMin || written(mem, size))) p.set(mem, 0, size);
  mark_written(mem, size);
  tick(p, *arena);
  return mem;
}

template <Platform P>
Addr Jemalloc53<P>::malloc(P& p, std::uint64_t bytes) {
  const Frame frame(p, je::places::kMalloc);
  return allocate(p, bytes, 0, false);
}

template <Platform P>
Addr Jemalloc53<P>::calloc(P& p, std::uint64_t count, std::uint64_t each) {
  const Frame frame(p, je::places::kCalloc);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) return 0;
  return allocate(p, bytes, 0, true);
}

template <Platform P>
Addr Jemalloc53<P>::memalign(P& p, std::uint64_t alignment, std::uint64_t bytes) {
  const Frame frame(p, je::places::kMemalign);
  if (!std::has_single_bit(alignment) || alignment > kBiasUnit) return 0;
  return allocate(p, bytes, static_cast<unsigned>(std::countr_zero(alignment)), false);
}

template <Platform P>
void Jemalloc53<P>::free(P& p, Addr mem) {
  if (mem == 0) return;
  const Frame frame(p, je::places::kFree);
  Arena* const arena = arena_of_thread(p);
  const int cache = cache_of(p);
  const std::uint64_t size = je53::usable_size(inward(mem));
  const bool cached = cache != je53::kNoTcache && size <= je53::kTcacheMax;
  p.cycles(cached                    ? je53::costs::kCached
           : size >= 4 * je53::kPage ? je53::costs::kLarge
                                     : je53::costs::kSmall);
  inside(p, [&] {
    je53::release(inward(mem), je53::flags(0, cache, 0));
    return true;
  });
  if (arena != nullptr) tick(p, *arena);
}

// arena_ralloc(): within the same class, or as a large block that grows or shrinks where it
// is; else a new block.
template <Platform P>
Addr Jemalloc53<P>::realloc(P& p, Addr mem, std::uint64_t bytes) {
  const Frame frame(p, je::places::kRealloc);
  if (mem == 0) return allocate(p, bytes, 0, false);
  if (bytes == 0) {
    free(p, mem);
    return 0;
  }
  const std::uint64_t old_size = je53::usable_size(inward(mem));
  const std::uint64_t size = je53::size_class(bytes, je53::flags(0, je53::kNoTcache, 0));
  if (size == 0) return 0;
  if (size == old_size) return mem;
  for (const auto& arena : arenas_) wait_for(p, *arena);
  if (oversize_) wait_for(p, *oversize_);
  p.cycles(je53::costs::kLarge);
  const std::uint64_t now = inside(p, [&] {
    return je53::resize(inward(mem), bytes, je53::flags(0, je53::kNoTcache, 0));
  });
  if (now == size) {
    mark_written(mem, size);
    return mem;
  }
  const Addr moved = allocate(p, bytes, 0, false);
  if (moved == 0) return 0;
  p.copy(moved, mem, std::min(bytes, old_size));
  free(p, mem);
  return moved;
}

}  // namespace faultline::alloc
