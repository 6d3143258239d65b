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
template <typename Release>
void Ptmalloc<P>::fork_release(P& p, Release release) {
  release(free_list_lock_);
  for_each_arena(p, [&](const Arena<P>& av) { release(av.lock()); });
  release(list_lock_);
}

template <Platform P>
void Ptmalloc<P>::fork_unlock_parent(P& p) {
  fork_release(p, [&](Lock& lock) { p.unlock(lock); });
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
  fork_release(p, [&](Lock& lock) { p.reset_lock(lock); });
  p.set_thread_hooks(thread_hooks_of<P>(*this));
}

template <Platform P>
Ptmalloc<P>::Ptmalloc(const Ptmalloc& other)
    : release_(other.release_),
      tcache_shape_(other.tcache_shape_),
      layout_(other.layout_),
      settings_(other.settings_),
      huge_(other.huge_),
      max_fast_(other.max_fast_),
      tcache_limit_(other.tcache_limit_),
      shared_(other.shared_),
      main_(other.main_),
      initialised_(other.initialised_.load()),
      marked_chunks_(other.marked_chunks_.load()),
      tcache_key_(other.tcache_key_) {}

}  // namespace faultline::alloc
