// SPDX-License-Identifier: Apache-2.0
//
// fork: all locks are held across it, so that the child's copy of every arena is whole.
//
// In the child only the forking thread is left: every arena but its own is free for the
// taking.
//
// Stands for: __malloc_fork_lock_parent, __malloc_fork_unlock_parent,
// __malloc_fork_unlock_child, malloc/arena.c (glibc 2.24-2.44).
#pragma once

#include "allocator/ptmalloc/ptmalloc_class.h"

namespace faultline::alloc {

template <Platform P>
template <typename Visit>
void Ptmalloc<P>::for_each_arena(P& p, Visit visit) {
  Addr at = main_;
  do {
    const Arena<P> av = arena(p, at);
    at = av.next();
    visit(av);
  } while (at != main_);
}

template <Platform P>
void Ptmalloc<P>::fork_lock(P& p) {
  if (!initialised_.load(std::memory_order_acquire)) init(p);
  p.lock(list_lock_);
  for_each_arena(p, [&](const Arena<P>& av) { p.lock(av.lock()); });
  p.lock(free_list_lock_);
}

template <Platform P>
void Ptmalloc<P>::fork_unlock_parent(P& p) {
  p.unlock(free_list_lock_);
  for_each_arena(p, [&](const Arena<P>& av) { p.unlock(av.lock()); });
  p.unlock(list_lock_);
}

template <Platform P>
void Ptmalloc<P>::fork_unlock_child(P& p) {
  const Addr own = p.thread_words().word[kArena];
  Addr free_list = 0;
  for_each_arena(p, [&](const Arena<P>& av) {
    av.set_attached(av.at() == own ? 1 : 0);
    if (av.at() == own) return;
    av.set_next_free(free_list);
    free_list = av.at();
  });
  p.atomic_store(at(Shared::kFreeList), free_list);
  fork_unlock_parent(p);
}

}  // namespace faultline::alloc
