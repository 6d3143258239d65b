// SPDX-License-Identifier: Apache-2.0
//
// jemalloc as it was in 2013, as an object over a Platform.
//
// One Jemalloc is the allocator of one process.  Memory comes from the kernel in chunks; an
// arena cuts its chunks into runs of pages; a run is one large block or is cut into regions
// of one size; threads keep regions and small blocks of pages in caches of their own.  Free
// runs are used lowest address first among those that fit best, and when too many of their
// pages are dirty they are given back to the kernel, in one of four ways (settings.h).  All
// data lies in the process's memory: maps at the head of each chunk, arenas and the nodes
// of chunk trees in chunks of the allocator's own, the roots in static storage.
//
// This file declares it; jemalloc.h is what its users include.  Read in this order:
// layout.h (what a chunk is), runs.h, large.h, purge.h (what all this is about), chunks.h,
// bins.h, caches.h, entry.h.
//
// Stands for: jemalloc 3.3.1 (src/arena.c, chunk.c, chunk_mmap.c, base.c, huge.c, tcache.c,
// jemalloc.c), written anew; its vrange port (J. Evans, December 2013); the decay rule
// of 5.x (src/decay.c).  Model: of 5.x only the rule when to purge.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "allocator/jemalloc/layout.h"
#include "allocator/jemalloc/places.h"
#include "allocator/jemalloc/settings.h"
#include "allocator/jemalloc/size_classes.h"
#include "allocator/jemalloc/tree.h"
#include "allocator/platform.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

namespace je {

// Instructions of a path, so that private work takes time in the model.  Model: estimates.
namespace costs {
inline constexpr std::uint64_t kCacheHit = 22, kFreeHit = 24, kRegion = 12, kRun = 160,
                               kCoalesce = 40, kChunk = 200, kPurgeRun = 80, kLockPair = 24;
}  // namespace costs

// What an arena holds, in pages; for tests and reports.
struct ArenaPages {
  std::uint64_t active = 0;
  std::uint64_t free[kRunStates] = {};
};

}  // namespace je

template <Platform P>
class Jemalloc {
 public:
  explicit Jemalloc(P& p, const je::Settings& settings = {});
  // For the child of a fork: knows what `other` knows.  To be made between fork_lock and
  // the fork; the child calls fork_unlock_child before anything else.
  explicit Jemalloc(const Jemalloc& other);
  Jemalloc& operator=(const Jemalloc&) = delete;

  // 0 is ENOMEM (or EINVAL for an alignment that is none).
  Addr malloc(P& p, std::uint64_t bytes);
  void free(P& p, Addr mem);
  Addr calloc(P& p, std::uint64_t count, std::uint64_t each);
  Addr realloc(P& p, Addr mem, std::uint64_t bytes);
  Addr memalign(P& p, std::uint64_t alignment, std::uint64_t bytes);
  Addr valloc(P& p, std::uint64_t bytes) { return memalign(p, p.facts().page_size, bytes); }
  Addr pvalloc(P& p, std::uint64_t bytes) {
    return valloc(p, geometry_.round_to_page(bytes == 0 ? 1 : bytes));
  }
  [[nodiscard]] std::uint64_t malloc_usable_size(P& p, Addr mem) const;
  // The libc's own, which holds nothing here: they succeed without effect.
  bool malloc_trim(P&, std::uint64_t) { return false; }
  int mallopt(P&, Param, std::int64_t) { return 1; }

  // Around a fork; the child calls the last one.
  void fork_lock(P& p);
  void fork_unlock_parent(P& p);
  void fork_unlock_child(P& p);
  // What a thread leaves behind: its cache is emptied and its arena has one thread less.
  void thread_exit(P& p);

  // For tests and reports.
  [[nodiscard]] const je::Geometry& geometry() const { return geometry_; }
  [[nodiscard]] const je::SizeClasses& classes() const { return classes_; }
  [[nodiscard]] const je::Settings& settings() const { return settings_; }
  [[nodiscard]] unsigned narenas() const { return narenas_; }
  // 0 if the slot has none yet.
  [[nodiscard]] Addr arena_at(P& p, unsigned slot) const;
  [[nodiscard]] je::ArenaPages pages_of(P& p, Addr arena) const;

 private:
  template <Platform Q>
  friend class JemallocCheck;
  using Lock = typename P::Lock;
  using Frame = typename P::Frame;
  using Bits = je::MapBits;
  using State = je::RunState;
  // Words in static storage, by index.
  enum class Root : unsigned {
    kBaseLock,
    kBaseNext,
    kBaseEnd,
    kFreeNodes,
    kChunksLock,
    kChunksBySize,
    kChunksByAddress,
    kHugeLock,
    kHuge,
    kArenasLock,
    kArenas,  // address of the table
    kCount
  };
  // A stretch of chunks, free or one huge block.
  struct Node {
    static constexpr std::uint64_t kSizeLink = 0, kAddressLink = 16, kAddress = 32,
                                   kSize = 40, kKind = 48, kBytes = 64;
  };
  // What free chunks hold.
  enum class Kind : std::uint64_t { kOld, kZeroed, kVolatile };
  enum ThreadWord : unsigned { kCache, kArena };
  static constexpr Addr kNoCache = 1;  // the thread has none, and gets none

  // Memory words and locks.
  [[nodiscard]] static std::uint64_t get(P& p, Addr at) {
    return p.template load<std::uint64_t>(at);
  }
  static void set(P& p, Addr at, std::uint64_t value) {
    p.template store<std::uint64_t>(at, value);
  }
  static void add(P& p, Addr at, std::uint64_t n) { set(p, at, get(p, at) + n); }
  [[nodiscard]] static std::uint32_t get32(P& p, Addr at) {
    return p.template load<std::uint32_t>(at);
  }
  static void set32(P& p, Addr at, std::uint32_t value) {
    p.template store<std::uint32_t>(at, value);
  }
  [[nodiscard]] Addr at(Root root) const {
    return roots_ + je::kWord * static_cast<unsigned>(root);
  }
  static void lock(P& p, Addr word, const char* name) {
    p.cycles(je::costs::kLockPair);
    p.lock(p.lock_at(word, name));
  }
  static void unlock(P& p, Addr word, const char* name) { p.unlock(p.lock_at(word, name)); }
  static constexpr const char *kArenaLockName = "arena->lock", *kBinLockName = "bin->lock",
                              *kChunksLockName = "chunks_mtx", *kHugeLockName = "huge_mtx",
                              *kBaseLockName = "base_mtx", *kArenasLockName = "arenas_lock";
  void lock_arena(P& p, Addr a) { lock(p, a + je::arena::kLock, kArenaLockName); }
  void unlock_arena(P& p, Addr a) { unlock(p, a + je::arena::kLock, kArenaLockName); }

  // chunks.h: whole chunks, and memory for the allocator itself.
  void boot(P& p);
  [[nodiscard]] bool is_booted(P& p);
  Addr base_alloc(P& p, std::uint64_t bytes);
  Addr node_alloc(P& p);
  void node_dalloc(P& p, Addr node);
  Addr chunk_alloc(P& p, std::uint64_t size, std::uint64_t alignment, bool& zero);
  Addr chunk_recycle(P& p, std::uint64_t size, std::uint64_t alignment, bool& zero);
  Addr chunk_map(P& p, std::uint64_t size, std::uint64_t alignment);
  void chunk_dealloc(P& p, Addr chunk, std::uint64_t size);
  void chunk_record(P& p, Addr chunk, std::uint64_t size, Kind kind);
  void insert_free(P& p, Addr node);
  void erase_free(P& p, Addr node);
  Kind give_back_chunk(P& p, Addr chunk, std::uint64_t size);
  Addr huge_alloc(P& p, std::uint64_t size, std::uint64_t alignment, bool zero);
  void huge_dalloc(P& p, Addr mem);
  [[nodiscard]] std::uint64_t huge_size(P& p, Addr mem) const;
  [[nodiscard]] auto chunks_by_size(P& p) const;
  [[nodiscard]] auto chunks_by_address(P& p) const;
  [[nodiscard]] auto huge_tree(P& p) const;

  // runs.h: runs of pages in an arena, whose lock is held.
  [[nodiscard]] Bits bits(P& p, Addr chunk, std::uint64_t page) const {
    return {get(p, geometry_.entry(chunk, page) + je::chunk::kEntryBits)};
  }
  void set_bits(P& p, Addr chunk, std::uint64_t page, Bits value) const {
    set(p, geometry_.entry(chunk, page) + je::chunk::kEntryBits, value.raw);
  }
  [[nodiscard]] auto runs_avail(P& p, Addr arena) const;
  [[nodiscard]] auto chunks_dirty(P& p, Addr arena) const;
  template <typename Change>
  void reorder_dirty(P& p, Addr arena, Addr chunk, Change change);
  [[nodiscard]] bool borders_free(P& p, Addr chunk, std::uint64_t page, State state) const;
  [[nodiscard]] std::uint64_t free_neighbours(P& p, Addr chunk, std::uint64_t page,
                                              std::uint64_t pages, State state) const;
  void avail_insert(P& p, Addr arena, Addr chunk, std::uint64_t page, std::uint64_t pages);
  void avail_remove(P& p, Addr arena, Addr chunk, std::uint64_t page, std::uint64_t pages);
  Addr arena_chunk_alloc(P& p, Addr arena);
  void arena_chunk_dealloc(P& p, Addr arena, Addr chunk);
  struct RunUse {
    bool large = true;
    unsigned bin = 0;
    bool zero = false;
    bool unmark = true;  // a volatile run is asked for again
  };
  void stay_free(P& p, Addr arena, Addr chunk, std::uint64_t page, std::uint64_t pages,
                 State state);
  void run_split(P& p, Addr arena, Addr run, std::uint64_t size, RunUse use);
  void zero_run(P& p, Addr chunk, std::uint64_t page, std::uint64_t pages, State state);
  Addr run_alloc(P& p, Addr arena, std::uint64_t size, RunUse use);
  Addr run_best_fit(P& p, Addr arena, std::uint64_t size, RunUse use);
  void run_dalloc(P& p, Addr arena, Addr run, bool dirty, State cleaned_to,
                  bool cleaned = false);
  void run_trim_head(P& p, Addr arena, Addr run, std::uint64_t size,
                     std::uint64_t new_size);
  void run_trim_tail(P& p, Addr arena, Addr run, std::uint64_t size, std::uint64_t new_size,
                     bool dirty);
  Addr large_alloc(P& p, Addr arena, std::uint64_t size, bool zero);
  Addr large_aligned(P& p, Addr arena, std::uint64_t size, std::uint64_t alignment);
  void large_dalloc(P& p, Addr mem, std::uint64_t page);
  bool large_resize(P& p, Addr mem, std::uint64_t old_size, std::uint64_t size);

  // purge.h: giving pages back.
  struct Given {
    State state;
    std::uint64_t unzeroed;  // 0 or Bits::kUnzeroed
  };
  void maybe_purge(P& p, Addr arena);
  void purge(P& p, Addr arena, State from, std::uint64_t keep, bool lazily);
  std::uint64_t purge_of_chunk(P& p, Addr arena, Addr chunk, State from, std::uint64_t left,
                               bool lazily);
  std::uint64_t purge_chunk(P& p, Addr arena, Addr chunk, State from, bool all, bool lazily,
                            std::uint64_t enough);
  Addr stash_runs(P& p, Addr arena, Addr chunk, State from, bool all, std::uint64_t enough);
  Given give_back(P& p, Addr run, std::uint64_t size, bool lazily);
  bool vrange_all(P& p, Addr start, std::uint64_t size, int mode);
  void unmark_volatile(P& p, Addr start, std::uint64_t size);
  void decay_tick(P& p, Addr arena);
  void decay_one(P& p, Addr arena, State from, std::int64_t ms, bool lazily);

  // bins.h: regions of one size.
  [[nodiscard]] Addr bin_at(Addr arena, unsigned bin) const {
    return arena + je::arena::kBins + je::bin::kBytes * bin;
  }
  [[nodiscard]] auto bin_runs(P& p, Addr bin_address) const;
  [[nodiscard]] Addr entry_of_run(Addr run) const {
    return geometry_.entry(geometry_.chunk_of(run), geometry_.page_in_chunk(run));
  }
  Addr region_alloc(P& p, Addr run, const je::BinInfo& info);
  Addr bin_malloc(P& p, Addr arena, unsigned bin);
  Addr bin_malloc_hard(P& p, Addr arena, unsigned bin);
  Addr nonfull_run(P& p, Addr arena, unsigned bin);
  void region_dalloc(P& p, Addr arena, Addr mem, unsigned bin);
  void lower_run(P& p, Addr bin_address, Addr run);
  void dalloc_bin_run(P& p, Addr arena, Addr run, unsigned bin);

  // caches.h: what a thread keeps.
  [[nodiscard]] Addr cache_of(P& p);
  [[nodiscard]] Addr make_cache(P& p);
  [[nodiscard]] Addr cache_bin(Addr cache, unsigned index) const;
  [[nodiscard]] std::uint32_t cache_most(unsigned index) const;
  Addr cache_alloc(P& p, Addr cache, unsigned index);
  void cache_fill(P& p, Addr cache, unsigned index);
  void cache_dalloc(P& p, Addr cache, unsigned index, Addr mem);
  void cache_flush(P& p, Addr cache, unsigned index, std::uint32_t keep);
  void cache_event(P& p, Addr cache);
  void drop_cache(P& p, Addr cache);

  // entry.h
  template <typename Release>
  void fork_release(P& p, Release release);
  [[nodiscard]] Addr arena_of_thread(P& p);
  Addr arenas_extend(P& p, unsigned slot);
  [[nodiscard]] std::uint64_t rounded(std::uint64_t bytes) const;
  Addr allocate(P& p, std::uint64_t bytes, bool zero);

  const je::Settings settings_;
  const je::Geometry geometry_;
  const je::SizeClasses classes_;
  unsigned narenas_;
  std::uint64_t cached_max_ = 0;  // largest block in a thread's cache
  unsigned cache_bins_ = 0;       // classes in a cache, small ones first
  Addr roots_ = 0;
  std::atomic<bool> booted_ = false;
  // Seen once: the kernel doesn't know the call, and MADV_DONTNEED stands in.
  std::atomic<bool> no_vrange_ = false, no_free_ = false;
};

}  // namespace faultline::alloc
