// SPDX-License-Identifier: Apache-2.0
//
// Giving unused pages back to the kernel.
//
// When: under the ratio rule as soon as an arena has more dirty pages than one for
// 1 << lg_dirty_mult active ones, and then down to that; under the decay rule each epoch,
// as many as have been unused for too long by a smooth curve.  What: chunk by chunk, the
// most fragmented first, the runs whose being clean would join them to others, or all. How:
// the runs are taken out of the arena, its lock is let go, one system call is made for each
// run, the lock is taken again and they return in their new state.
//
// A volatile run counts as clean and is not given back again; it must be asked for again
// before it is used, with the arena's lock held; whether the kernel took any of it is of no
// interest.
//
// Stands for: arena_maybe_purge, arena_purge, arena_chunk_purge (src/arena.c,
// jemalloc 3.3.1) and pages_purge (src/chunk_mmap.c); the vrange port's use of the call;
// decay.c (5.3.0). Model: muzzy runs go chunk by chunk, too, not the oldest first.
#pragma once

#include <array>

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

namespace je {

// The share of pages, in 1/2^24, that may stay after i of 200 epochs: 6x^5 - 15x^4 + 10x^3.
inline constexpr unsigned kCurveShift = 24;
consteval std::array<std::uint64_t, decay::kSteps> smoothstep() {
  // With x = n / d: n^3 (6n^2 - 15nd + 10d^2) / d^5, in whole numbers.
  constexpr std::uint64_t d = decay::kSteps, whole = d * d * d * d * d;
  static_assert(whole < std::uint64_t{1} << (63 - kCurveShift));
  std::array<std::uint64_t, decay::kSteps> out{};
  for (std::uint64_t n = 1; n <= d; ++n) {
    const std::uint64_t share = n * n * n * (6 * n * n + 10 * d * d - 15 * n * d);
    out[n - 1] = ((share << kCurveShift) + whole / 2) / whole;
  }
  return out;
}
inline constexpr std::array<std::uint64_t, decay::kSteps> kSmoothstep = smoothstep();

}  // namespace je

// The arena's lock is held; it is let go and taken again.
template <Platform P>
void Jemalloc<P>::maybe_purge(P& p, Addr arena) {
  if (settings_.purge == je::Purge::kNone) return;
  if (settings_.rule == je::PurgeRule::kDecay) {
    if (settings_.dirty_decay_ms == 0)
      purge(p, arena, State::kDirty, 0, settings_.muzzy_decay_ms != 0);
    return;
  }
  if (settings_.lg_dirty_mult < 0) return;
  const std::uint64_t dirty =
      get(p, arena + je::arena::kPages + je::kWord * static_cast<unsigned>(State::kDirty));
  const std::uint64_t purging = get(p, arena + je::arena::kPurging);
  if (dirty <= purging) return;
  const std::uint64_t most = get(p, arena + je::arena::kActive) >> settings_.lg_dirty_mult;
  if (dirty - purging > most) purge(p, arena, State::kDirty, most, true);
}

// Down to `keep` pages in that state.  `lazily`: in the way that the policy names.
template <Platform P>
void Jemalloc<P>::purge(P& p, Addr arena, State from, std::uint64_t keep, bool lazily) {
  const std::uint64_t offset = je::kWord * static_cast<unsigned>(from);
  const std::uint64_t purging = get(p, arena + je::arena::kPurging);
  const std::uint64_t pages = get(p, arena + je::arena::kPages + offset);
  if (pages <= purging + keep) return;
  const Frame frame(p, je::places::kPurge);
  std::uint64_t left = pages - purging - keep;
  add(p, arena + je::arena::kPurging, left);
  while (left > 0) {
    const Addr chunk = chunks_dirty(p, arena).find_first(
        [&](Addr c) { return get(p, c + je::chunk::kPagesIn + offset) != 0; });
    const std::uint64_t done =
        chunk == 0 ? 0 : purge_of_chunk(p, arena, chunk, from, left, lazily);
    if (done == 0) break;  // others are at it
    left -= std::min(left, done);
  }
  add(p, arena + je::arena::kPurging, 0 - left);
}

// At least a part of the `left` pages that the arena counts as being purged.  3.x takes all
// it can of a chunk, 5.x stops when it is enough.  In 3.x pages that were taken out of the
// arena are counted as dirty no longer, nor as being purged: what others free meanwhile is
// theirs to purge.
template <Platform P>
std::uint64_t Jemalloc<P>::purge_of_chunk(P& p, Addr arena, Addr chunk, State from,
                                          std::uint64_t left, bool lazily) {
  const std::uint64_t offset = je::kWord * static_cast<unsigned>(from);
  const bool decay = settings_.rule == je::PurgeRule::kDecay;
  const bool all = decay || get(p, chunk + je::chunk::kRunsAdjacent) == 0;
  const std::uint64_t enough = decay ? left : ~std::uint64_t{0};
  const std::uint64_t in_chunk = get(p, chunk + je::chunk::kPagesIn + offset);
  const std::uint64_t counted = decay ? 0 : std::min(left, in_chunk);
  add(p, arena + je::arena::kPurging, 0 - counted);
  std::uint64_t done = purge_chunk(p, arena, chunk, from, all, lazily, enough);
  // No run in that state is one of the pairs.
  if (done == 0 && !all) done = purge_chunk(p, arena, chunk, from, true, lazily, enough);
  add(p, arena + je::arena::kPurging, counted - std::min(left, done));
  return done;
}

// Takes the chunk's runs that shall go out of the arena: a list through their map entries.
template <Platform P>
Addr Jemalloc<P>::stash_runs(P& p, Addr arena, Addr chunk, State from, bool all,
                             std::uint64_t enough) {
  Addr first = 0, last = 0;
  std::uint64_t stashed = 0;
  for (std::uint64_t page = geometry_.first_page;
       page < geometry_.chunk_pages && stashed < enough;) {
    const Bits b = bits(p, chunk, page);
    const bool small = b.allocated() && !b.large();
    const std::uint64_t size = small ? classes_[b.bin()].run : b.size();
    const std::uint64_t pages = size >> geometry_.page_shift;
    if (!b.allocated() && b.state() == from &&
        (all || free_neighbours(p, chunk, page, pages, from) != 0)) {
      const Addr entry = geometry_.entry(chunk, page);
      run_split(p, arena, chunk + (page << geometry_.page_shift), size, {.unmark = false});
      set(p, entry + je::chunk::kEntryLink, 0);
      if (last != 0)
        set(p, last + je::chunk::kEntryLink, entry);
      else
        first = entry;
      last = entry;
      stashed += pages;
    }
    page += pages;
  }
  return first;
}

template <Platform P>
std::uint64_t Jemalloc<P>::purge_chunk(P& p, Addr arena, Addr chunk, State from, bool all,
                                       bool lazily, std::uint64_t enough) {
  const Addr stash = stash_runs(p, arena, chunk, from, all, enough);
  const auto bits_of = [&](Addr e) { return Bits{get(p, e + je::chunk::kEntryBits)}; };
  std::uint64_t done = 0;
  unlock_arena(p, arena);
  State to = State::kClean;
  for (Addr e = stash; e != 0; e = get(p, e + je::chunk::kEntryLink)) {
    p.cycles(je::costs::kPurgeRun);
    const Addr run = geometry_.page_of_entry(e);
    const std::uint64_t size = bits_of(e).size();
    const Given given = give_back(p, run, size, lazily);
    to = given.state;
    const std::uint64_t first = geometry_.page_in_chunk(run);
    const std::uint64_t pages = size >> geometry_.page_shift;
    for (std::uint64_t i = first; i < first + pages; ++i) {
      const std::uint64_t raw = bits(p, chunk, i).raw;
      set_bits(p, chunk, i, {(raw & ~Bits::kUnzeroed) | given.unzeroed});
    }
    done += pages;
  }
  lock_arena(p, arena);
  for (Addr e = stash; e != 0;) {
    const Addr next = get(p, e + je::chunk::kEntryLink);
    run_dalloc(p, arena, geometry_.page_of_entry(e), false, to, true);
    e = next;
  }
  return done;
}

// pages_purge(), without the lock.
template <Platform P>
typename Jemalloc<P>::Given Jemalloc<P>::give_back(P& p, Addr start, std::uint64_t size,
                                                   bool lazily) {
  const bool decay = settings_.rule == je::PurgeRule::kDecay;
  if (settings_.purge == je::Purge::kNone) return {State::kClean, Bits::kUnzeroed};
  const bool free = decay ? lazily : settings_.purge == je::Purge::kFree;
  if (free && !no_free_.load(std::memory_order_relaxed)) {
    if (p.madvise(start, size, sys::kMadvFree) == 0)
      return {decay ? State::kMuzzy : State::kClean, Bits::kUnzeroed};
    no_free_.store(true, std::memory_order_relaxed);
  }
  if (settings_.purge == je::Purge::kVrange &&
      !no_vrange_.load(std::memory_order_relaxed)) {
    if (vrange_all(p, start, size, sys::kVrangeVolatile))
      return {State::kVolatile, Bits::kUnzeroed};
    no_vrange_.store(true, std::memory_order_relaxed);
  }
  p.madvise(start, size, sys::kMadvDontneed);
  return {State::kClean, 0};
}

// True if all of it is marked so now.  From v8 on the call says how many bytes it did.
// Model: the port un-marks what a short count left marked; here that stays so, unused,
// until it is un-marked as a whole.
template <Platform P>
bool Jemalloc<P>::vrange_all(P& p, Addr start, std::uint64_t size, int mode) {
  constexpr unsigned kCountsBytes = 8;
  const SysValue answer = p.vrange(start, size, mode, sys::kVrangeFull);
  return answer.ok() && (p.facts().vrange_version < kCountsBytes || answer.value == size);
}

// Until it succeeds; whether the kernel took some of it is of no interest.
template <Platform P>
void Jemalloc<P>::unmark_volatile(P& p, Addr start, std::uint64_t size) {
  while (!vrange_all(p, start, size, sys::kVrangeNovolatile)) {
  }
}

// arena_decay_ticks(): the clock is read at each thousandth event.
template <Platform P>
void Jemalloc<P>::decay_tick(P& p, Addr arena) {
  constexpr std::uint64_t kTicksPerUpdate = 1000;
  if (settings_.rule != je::PurgeRule::kDecay) return;
  const std::uint64_t ticks = get(p, arena + je::arena::kTicks);
  if (ticks != 0) {
    set(p, arena + je::arena::kTicks, ticks - 1);
    return;
  }
  set(p, arena + je::arena::kTicks, kTicksPerUpdate - 1);
  decay_one(p, arena, State::kDirty, settings_.dirty_decay_ms,
            settings_.muzzy_decay_ms != 0);
  decay_one(p, arena, State::kMuzzy, settings_.muzzy_decay_ms, false);
}

// decay_maybe_advance_epoch(): pages that came in an epoch may stay by the curve.
template <Platform P>
void Jemalloc<P>::decay_one(P& p, Addr arena, State from, std::int64_t ms, bool lazily) {
  constexpr std::uint64_t kNsPerMs = 1'000'000;
  if (ms <= 0) return;
  const std::uint64_t interval =
      static_cast<std::uint64_t>(ms) * kNsPerMs / je::decay::kSteps;
  const Addr d = arena + je::arena::kDecay +
                 (from == State::kMuzzy ? je::decay::kBytes : std::uint64_t{0});
  const std::uint64_t now = p.monotonic_ns();
  const std::uint64_t epoch = get(p, d + je::decay::kEpoch);
  if (epoch == 0) {
    set(p, d + je::decay::kEpoch, now);
    return;
  }
  if (now < epoch + interval) return;
  const std::uint64_t passed = (now - epoch) / interval;
  set(p, d + je::decay::kEpoch, epoch + passed * interval);
  const auto backlog = [&](std::uint64_t i) {
    return d + je::decay::kBacklog + i * je::kWord;
  };
  const std::uint64_t pages =
      get(p, arena + je::arena::kPages + je::kWord * static_cast<unsigned>(from));
  const std::uint64_t seen = get(p, d + je::decay::kPagesSeen);
  std::uint64_t keep = 0;
  for (std::uint64_t i = 0; i < je::decay::kSteps; ++i) {
    std::uint64_t came = 0;
    if (i + passed < je::decay::kSteps)
      came = get(p, backlog(i + passed));
    else if (i + 1 == je::decay::kSteps)
      came = pages > seen ? pages - seen : 0;
    set(p, backlog(i), came);
    keep += came * je::kSmoothstep[i];
  }
  keep >>= je::kCurveShift;
  if (pages > keep) purge(p, arena, from, keep, lazily);
  set(p, d + je::decay::kPagesSeen,
      get(p, arena + je::arena::kPages + je::kWord * static_cast<unsigned>(from)));
}

}  // namespace faultline::alloc
