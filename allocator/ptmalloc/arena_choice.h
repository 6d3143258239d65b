// SPDX-License-Identifier: Apache-2.0
//
// Which arena a thread uses: one that no thread uses any more, else a new one while the
// limit allows, else the next of the ring that is not locked just now.  The choice is kept.
//
// Stands for: arena_get, arena_get2, reused_arena, get_free_list, _int_new_arena,
// malloc/arena.c.
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

// The thread's arena, locked; 0 if it has none and none can be had.
template <Platform P>
Addr Ptmalloc<P>::arena_get(P& p, std::uint64_t bytes) {
  const Addr own = p.thread_words().word[kArena];
  if (own == 0) return arena_get2(p, bytes, 0);
  lock(p, arena(p, own));
  return own;
}

template <Platform P>
Addr Ptmalloc<P>::arena_get2(P& p, std::uint64_t bytes, Addr avoid) {
  const Frame frame(p, places::kArenaGet2);
  if (const Addr free_one = get_free_list(p)) return free_one;
  if (!may_add_arena(p)) return reused_arena(p, avoid);
  const Addr fresh = new_arena(p, bytes);
  if (fresh == 0) p.atomic_add(at(Shared::kArenas), ~std::uint64_t{0});
  return fresh;
}

// Counts one more arena if the limit allows.  The limit is computed late: a process that
// never has many threads never asks for the number of CPUs.
template <Platform P>
bool Ptmalloc<P>::may_add_arena(P& p) {
  const bool per_cpu = release_.arena_limit == ArenaLimit::kOnePerCpu;
  for (;;) {
    const std::uint64_t count = p.atomic_load(at(Shared::kArenas));
    std::uint64_t limit = p.atomic_load(at(Shared::kArenaLimit));
    if (limit == 0) {
      const std::uint64_t cpus = p.facts().cpus;
      if (settings_.arena_max != 0)
        limit = settings_.arena_max;
      else if (per_cpu && count >= settings_.arena_test)
        limit = std::max(cpus, settings_.arena_test);
      else if (!per_cpu && count > settings_.arena_test)
        limit = 8 * cpus;
      if (limit != 0) p.atomic_store(at(Shared::kArenaLimit), limit);
    }
    if (limit != 0 && count >= limit) return false;
    if (p.compare_exchange(at(Shared::kArenas), count, count + 1)) return true;
  }
}

// _int_new_arena: the arena's state lies at the start of its first heap.
template <Platform P>
Addr Ptmalloc<P>::new_arena(P& p, std::uint64_t bytes) {
  const std::uint64_t admin =
      release_.heap_info_bytes + release_.malloc_state_bytes + kMallocAlignment;
  Addr heap = new_heap(p, bytes + admin, settings_.top_pad);
  // The request may be too large for any heap; then it will get a mapping of its own.
  if (heap == 0) heap = new_heap(p, admin, settings_.top_pad);
  if (heap == 0) return 0;
  const Addr address = heap + release_.heap_info_bytes;
  const Arena<P> av = arena(p, address);
  const std::uint64_t size = av.m.word(heap + heap_info::kSize);
  av.m.set_word(heap + heap_info::kArena, address);
  av.init_state();
  av.set_attached(1);
  av.add_system_mem(size);
  av.set_max_system_mem(size);
  av.set_top(align_up(address + release_.malloc_state_bytes, kMallocAlignment));
  av.m.set_head(av.top(), (heap + size - av.top()) | kPrevInuse);

  const Addr replaced = p.thread_words().word[kArena];
  p.thread_words().word[kArena] = address;
  p.lock(list_lock_);
  const Arena<P> main = arena(p, main_);
  av.set_next(main.next());
  p.atomic_store(main_ + layout_.next, address);
  p.unlock(list_lock_);
  p.lock(free_list_lock_);
  detach_locked(p, replaced);
  p.unlock(free_list_lock_);
  lock(p, av);
  return address;
}

// The arena that was let go last, locked; 0 if there is none.
template <Platform P>
Addr Ptmalloc<P>::get_free_list(P& p) {
  if (p.atomic_load(at(Shared::kFreeList)) == 0) return 0;
  p.lock(free_list_lock_);
  const Addr found = p.atomic_load(at(Shared::kFreeList));
  if (found != 0) {
    p.atomic_store(at(Shared::kFreeList), arena(p, found).next_free());
    arena(p, found).set_attached(1);
    detach_locked(p, p.thread_words().word[kArena]);
  }
  p.unlock(free_list_lock_);
  if (found == 0) return 0;
  lock(p, arena(p, found));
  p.thread_words().word[kArena] = found;
  return found;
}

// Shares an arena: the first of the ring that isn't locked; if all are, the one where the
// search began (not `avoid`), after a wait.
template <Platform P>
Addr Ptmalloc<P>::reused_arena(P& p, Addr avoid) {
  const auto next = [&](Addr a) { return p.atomic_load(a + layout_.next); };
  Addr begin = p.atomic_load(at(Shared::kNextToUse));
  if (begin == 0) begin = main_;
  Addr found = begin;
  bool locked = false;
  do {
    locked = p.try_lock(arena(p, found).lock());
    if (!locked) found = next(found);
  } while (!locked && found != begin);
  if (!locked) {
    if (found == avoid) found = next(found);
    lock(p, arena(p, found));
  }
  attach(p, found);
  p.thread_words().word[kArena] = found;
  p.atomic_store(at(Shared::kNextToUse), next(found));
  return found;
}

// The thread comes to `av` and leaves the arena it had; one that was free is so no more.
template <Platform P>
void Ptmalloc<P>::attach(P& p, Addr av) {
  p.lock(free_list_lock_);
  detach_locked(p, p.thread_words().word[kArena]);
  if (arena(p, av).attached() == 0) {
    Addr before = 0;
    Addr a = p.atomic_load(at(Shared::kFreeList));
    while (a != 0 && a != av) {
      before = a;
      a = arena(p, a).next_free();
    }
    if (a != 0 && before != 0)
      arena(p, before).set_next_free(arena(p, a).next_free());
    else if (a != 0)
      p.atomic_store(at(Shared::kFreeList), arena(p, a).next_free());
  }
  arena(p, av).set_attached(arena(p, av).attached() + 1);
  p.unlock(free_list_lock_);
}

// detach_arena: one thread less; an arena that a living thread replaced doesn't become
// free.
template <Platform P>
void Ptmalloc<P>::detach_locked(P& p, Addr av) {
  if (av != 0) arena(p, av).set_attached(arena(p, av).attached() - 1);
}

// A thread that ends: the last one to use an arena puts it on the free list.
template <Platform P>
void Ptmalloc<P>::detach_thread(P& p) {
  const Addr own = p.thread_words().word[kArena];
  p.thread_words().word[kArena] = 0;
  if (own == 0) return;
  p.lock(free_list_lock_);
  detach_locked(p, own);
  if (arena(p, own).attached() == 0) {
    arena(p, own).set_next_free(p.atomic_load(at(Shared::kFreeList)));
    p.atomic_store(at(Shared::kFreeList), own);
  }
  p.unlock(free_list_lock_);
}

// After a failure: a thread arena gives way to the main one, the main one to any other.
template <Platform P>
Addr Ptmalloc<P>::arena_get_retry(P& p, Addr av, std::uint64_t bytes) {
  p.unlock(arena(p, av).lock());
  if (av == main_) return arena_get2(p, bytes, av);
  lock(p, arena(p, main_));
  return main_;
}

}  // namespace faultline::alloc
