// SPDX-License-Identifier: Apache-2.0
//
// glibc's malloc, as an object over a Platform.
//
// One Ptmalloc is the allocator of one process.  Which release of glibc it stands for is
// data (release.h); which system calls it makes, in which order, and which words it touches
// are that release's.  All of its data lies in the process's memory (arenas, heaps, caches,
// chunk headers) or in static storage (the main arena, the parameters); the object holds
// only where these are and what never changes after start-up.
//
// This file declares it; ptmalloc.h is what its users include.  Read in this order:
// layout.h (what a chunk is), int_malloc.h, int_free.h, sysmalloc.h (asking the kernel for
// more), heap.h and arena_choice.h (threads), mmapped.h, trim.h.
//
// Stands for: malloc/malloc.c and malloc/arena.c (glibc 2.23-2.44), written anew.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/platform.h"
#include "allocator/ptmalloc/arena.h"
#include "allocator/ptmalloc/bins.h"
#include "allocator/ptmalloc/chunks.h"
#include "allocator/ptmalloc/fatal.h"
#include "allocator/ptmalloc/huge_pages.h"
#include "allocator/ptmalloc/layout.h"
#include "allocator/ptmalloc/places.h"
#include "allocator/ptmalloc/release.h"
#include "allocator/ptmalloc/settings.h"
#include "allocator/ptmalloc/tcache.h"

namespace faultline::alloc {

// What an arena holds; in bytes unless it says chunks.
struct ArenaInfo {
  std::uint64_t system = 0, max_system = 0;       // from the kernel, now and at most
  std::uint64_t fast_chunks = 0, fast_bytes = 0;  // in fastbins
  std::uint64_t free_chunks = 0, free_bytes = 0;  // in the other bins
  std::uint64_t top = 0;
};

template <Platform P>
class Ptmalloc {
 public:
  // `release` must outlive the object.  Makes no system call (to 2.41).
  Ptmalloc(P& p, const ReleaseProfile& release, const Settings& settings = {});
  // For the child of a fork: knows what `other` knows.  To be made between fork_lock and
  // the fork; the child calls fork_unlock_child before anything else.
  explicit Ptmalloc(const Ptmalloc& other);
  Ptmalloc& operator=(const Ptmalloc&) = delete;

  // 0 is ENOMEM (or EINVAL for an alignment that is none).
  Addr malloc(P& p, std::uint64_t bytes);
  void free(P& p, Addr mem);
  Addr calloc(P& p, std::uint64_t count, std::uint64_t each);
  Addr realloc(P& p, Addr mem, std::uint64_t bytes);
  Addr memalign(P& p, std::uint64_t alignment, std::uint64_t bytes);
  Addr valloc(P& p, std::uint64_t bytes);
  Addr pvalloc(P& p, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t malloc_usable_size(P& p, Addr mem) const;
  bool malloc_trim(P& p, std::uint64_t pad);
  // Answers 1 if the parameter was set, as the C function.
  int mallopt(P& p, Param param, std::int64_t value);

  // Around a fork; the child calls the last one.
  void fork_lock(P& p);
  void fork_unlock_parent(P& p);
  void fork_unlock_child(P& p);
  // visit(ArenaInfo) of each arena, the main one first.
  template <typename Visit>
  void for_each_info(P& p, Visit visit);

  // What a thread leaves behind: its cache is emptied and its arena let go.
  void thread_exit(P& p);

  // The heap that holds a chunk of a thread arena.
  [[nodiscard]] Addr heap_start(Addr chunk) const { return heap_of(chunk, huge_.heap_max); }

  // For tests and reports.
  [[nodiscard]] const HugePages& huge() const { return huge_; }
  [[nodiscard]] const ReleaseProfile& release() const { return release_; }
  [[nodiscard]] const ArenaLayout& layout() const { return layout_; }
  [[nodiscard]] Addr main_arena_address() const { return main_; }
  [[nodiscard]] Arena<P> arena(P& p, Addr at) const {
    return Arena<P>(p, at, at == main_, layout_);
  }
  [[nodiscard]] std::uint64_t shared(P& p, Shared word) const {
    return p.atomic_load(at(word));
  }

 private:
  using Lock = typename P::Lock;
  using Frame = typename P::Frame;
  enum ThreadWord : unsigned { kTcache, kArena, kExiting };

  // Start-up, and the way into an arena.
  void init(P& p);
  Addr malloc_first(P& p, std::uint64_t bytes);
  Addr malloc_uncached(P& p, std::uint64_t bytes);
  void free_uncached(P& p, Addr c, std::uint64_t head);
  [[nodiscard]] bool alone(P& p) const {
    return release_.single_thread_path && !p.multi_threaded();
  }
  [[nodiscard]] Addr at(Shared word) const {
    return shared_ + kWord * static_cast<unsigned>(word);
  }
  template <typename Work>
  Addr in_an_arena(P& p, std::uint64_t bytes, Work work);
  template <typename Work>
  Addr in_a_locked_arena(P& p, std::uint64_t bytes, Work work);
  void lock(P& p, const Arena<P>& av) {
    p.cycles(release_.costs.lock_pair);
    p.lock(av.lock());
  }
  [[nodiscard]] Arena<P> arena_of(P& p, Addr c, std::uint64_t head) const;

  template <typename Visit>
  void for_each_arena(P& p, Visit visit);
  template <typename Release>
  void fork_release(P& p, Release release);
  [[nodiscard]] ArenaInfo info_of(const Arena<P>& av) const;

  // Thread cache (thread_cache.h).
  FAULTLINE_INLINE Addr thread_cache(P& p, std::uint64_t size_to_put = UINT64_MAX);
  void make_thread_cache(P& p);
  void empty_thread_cache(P& p, Addr cache);
  FAULTLINE_INLINE Addr take_cached(P& p, Addr cached, std::uint64_t bytes);
  [[nodiscard]] FAULTLINE_INLINE bool cache_has_room(P& p, std::uint64_t size) const;
  template <typename Take>
  FAULTLINE_INLINE void fill_cache(P& p, std::uint64_t size, Take take);
  FAULTLINE_INLINE void cache(P& p, Addr c, std::uint64_t size);
  void check_double_free(const Tcache<P>& tc, unsigned index, Addr mem) const;

  // Allocation in an arena (int_malloc.h).
  Addr int_malloc(const Arena<P>& av, std::uint64_t bytes);
  Addr find_chunk(const Arena<P>& av, std::uint64_t nb);
  FAULTLINE_INLINE Addr from_fastbin(const Arena<P>& av, std::uint64_t nb);
  Addr from_small_bin(const Arena<P>& av, std::uint64_t nb);
  Addr from_unsorted(const Arena<P>& av, std::uint64_t nb);
  Addr from_bins(const Arena<P>& av, std::uint64_t nb);
  Addr from_bin(const Arena<P>& av, Addr c, std::uint64_t nb, bool remember);
  Addr from_top(const Arena<P>& av, std::uint64_t nb);
  Addr carve(const Arena<P>& av, Addr c, std::uint64_t size, std::uint64_t nb,
             bool remember);
  FAULTLINE_INLINE Addr pop_fast(P& p, Addr head);

  // Freeing in an arena (int_free.h).
  enum class Held : std::uint8_t {
    kNo,
    kYes
  };  // whether the caller holds the arena's lock
  void int_free(const Arena<P>& av, Addr c, Held held);
  FAULTLINE_INLINE void int_free_chunk(const Arena<P>& av, Addr c, std::uint64_t size,
                                       Held held);
  void free_cut(const Arena<P>& av, Addr c, bool through_cache);
  FAULTLINE_INLINE void push_fast(const Arena<P>& av, Addr c, std::uint64_t size);
  std::uint64_t merge_free(const Arena<P>& av, Addr c, std::uint64_t size);
  void trim_after_free(const Arena<P>& av);
  void consolidate(const Arena<P>& av);
  void consolidate_chunk(const Arena<P>& av, Addr c);

  // More memory (sysmalloc.h).
  Addr sysmalloc(const Arena<P>& av, std::uint64_t nb);
  void grow_main(const Arena<P>& av, std::uint64_t nb);
  struct Region {
    Addr start = 0, end = 0;  // end: 0 if the break is to be asked for
    std::uint64_t size = 0;
    bool ok = false;
  };
  Region more_core(const Arena<P>& av, std::uint64_t nb, std::uint64_t old_size);
  [[nodiscard]] std::uint64_t break_growth(P& p, std::uint64_t size);
  Region map_core(const Arena<P>& av, std::uint64_t nb, std::uint64_t old_size,
                  std::uint64_t size, std::uint64_t least, std::uint64_t unit,
                  unsigned flags);
  void madvise_thp(P& p, Addr start, std::uint64_t size);
  void extend_main(const Arena<P>& av, Region region, Addr old_top, std::uint64_t old_size);
  void fence_old_top(const Arena<P>& av, Addr old_top, std::uint64_t old_size);
  bool grow_thread_arena(const Arena<P>& av, std::uint64_t nb);
  void leave_heap(const Arena<P>& av, Addr old_top, std::uint64_t old_size);

  // Heaps of thread arenas (heap.h).
  Addr new_heap(P& p, std::uint64_t size, std::uint64_t top_pad);
  Addr new_heap_in(P& p, std::uint64_t size, std::uint64_t top_pad, std::uint64_t unit,
                   unsigned flags);
  Addr reserve_heap(P& p, unsigned flags);
  [[nodiscard]] std::uint64_t unit_of(P& p, Addr heap) const;
  bool grow_heap(P& p, Addr heap, std::uint64_t more);
  bool shrink_heap(P& p, Addr heap, std::uint64_t less);
  void heap_trim(const Arena<P>& av);
  Addr drop_empty_heaps(const Arena<P>& av);

  // Which arena (arena_choice.h).
  Addr arena_get(P& p, std::uint64_t bytes);
  Addr arena_get2(P& p, std::uint64_t bytes, Addr avoid);
  Addr arena_get_retry(P& p, Addr av, std::uint64_t bytes);
  [[nodiscard]] bool may_add_arena(P& p);
  Addr new_arena(P& p, std::uint64_t bytes);
  Addr get_free_list(P& p);
  Addr reused_arena(P& p, Addr avoid);
  void attach(P& p, Addr av);
  void detach_locked(P& p, Addr av);
  void detach_thread(P& p);

  // Blocks with a mapping of their own (mmapped.h).
  Addr mmap_chunk(P& p, std::uint64_t nb);
  Addr map_chunk(P& p, std::uint64_t nb, std::uint64_t unit, unsigned flags);
  void free_mmapped(P& p, Addr c, std::uint64_t head);
  void munmap_chunk(P& p, Addr c);
  bool mremap_chunk(P& p, Addr& c, std::uint64_t nb);

  // realloc.h, memalign.h, calloc.h, trim.h
  Addr realloc_mmapped(P& p, Addr mem, std::uint64_t bytes, std::uint64_t nb);
  Addr int_realloc(const Arena<P>& av, Addr c, std::uint64_t old_size, std::uint64_t nb);
  void trim_to(const Arena<P>& av, Addr c, std::uint64_t size, std::uint64_t nb);
  Addr int_memalign(const Arena<P>& av, std::uint64_t alignment, std::uint64_t bytes);
  Addr cut_lead(const Arena<P>& av, Addr c, std::uint64_t alignment);
  [[nodiscard]] std::uint64_t used_before(const Arena<P>& av) const;
  void give_back(P& p, Addr start, std::uint64_t bytes);
  void take_back(P& p, Addr start, std::uint64_t bytes);
  void take_back_chunk(P& p, Addr c, std::uint64_t size, std::uint64_t nb);
  bool systrim(const Arena<P>& av, std::uint64_t pad);
  bool trim_arena(const Arena<P>& av, std::uint64_t pad);
  bool set_parameter(P& p, Param param, std::int64_t value);

  [[nodiscard]] std::uint64_t page(P& p) const { return p.facts().page_size; }

  const ReleaseProfile& release_;
  TcacheShape tcache_shape_;
  const ArenaLayout layout_;
  Settings settings_;
  HugePages huge_;
  std::uint64_t max_fast_ = 128;  // largest chunk for a fastbin
  unsigned tcache_limit_ = 0;     // size classes in use
  Addr shared_ = 0;               // the words of Shared
  Addr main_ = 0;                 // the main arena
  std::atomic<bool> initialised_ = false;
  std::atomic<bool> marked_chunks_ = false;  // malloc_trim has made some volatile
  std::uint64_t tcache_key_ = 0;
  Lock list_lock_{"list_lock"};            // insertion of a new arena
  Lock free_list_lock_{"free_list_lock"};  // the free list and the attached counts
};

}  // namespace faultline::alloc
