// SPDX-License-Identifier: Apache-2.0
//
// Real jemalloc 5.3 as the allocator of a process over a Platform.  This file declares it;
// jemalloc53.h is what its users include.  hooks.h and entry.h follow.
//
// Arenas, slabs, caches, extents, decay and purging are the library's own code (library.h).
// This is what lies between: threads get caches and arenas as the library gives them, hooks
// of extents become the process's system calls, and virtual time drives decay.
//
// Addresses.  The library sees those of the process moved by a constant into a window.
// Their order, distances and alignment stay.  It never touches the memory behind them, so
// that realloc's copies and calloc's zeroes are made here.
//
// Hooks that enter the kernel take virtual time; other threads run meanwhile, and enter the
// library while the first one is inside.  That is sound where the library holds none of its
// locks, which is so for purging (pac_decay_to_limit lets decay->mtx go).  While it maps or
// commits memory it holds pac->grow_mtx; then others wait for that arena here.
//
// Decay.  The library draws a part of each epoch's length from a number that starts from a
// host address: an epoch ends one to two intervals after the last one.  Its clock is
// therefore shown in steps of a whole interval, one tick before the epochs' beginnings.
// At such times an epoch is over whatever was drawn: Model: each lasts as long as the
// longest draw makes the first one.
//
// Stands for: jemalloc 5.3.0 as a process's malloc.  Model: cache_oblivious is off (each
// large block starts at a page instead of a drawn line in it); caches have no garbage
// collection by bytes allocated; the clock is looked at each thousandth call of a thread,
// not at a drawn number of events around 1000; locks other than grow_mtx are never waited
// for; no profiling, no percpu arenas, no background threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/jemalloc/places.h"
#include "allocator/jemalloc53/library.h"
#include "allocator/jemalloc53/settings.h"
#include "allocator/platform.h"
#include "allocator/platform/sparse_bits.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

template <Platform P>
class Jemalloc53 {
 public:
  explicit Jemalloc53(P& p, const je::Settings& settings = {});
  ~Jemalloc53();
  Jemalloc53(const Jemalloc53&) = delete;
  Jemalloc53& operator=(const Jemalloc53&) = delete;

  // 0 is ENOMEM (or EINVAL for an alignment that is none).
  Addr malloc(P& p, std::uint64_t bytes);
  void free(P& p, Addr mem);
  Addr calloc(P& p, std::uint64_t count, std::uint64_t each);
  Addr realloc(P& p, Addr mem, std::uint64_t bytes);
  Addr memalign(P& p, std::uint64_t alignment, std::uint64_t bytes);
  Addr valloc(P& p, std::uint64_t bytes) { return memalign(p, je53::kPage, bytes); }
  Addr pvalloc(P& p, std::uint64_t bytes) {
    return valloc(p, round_up(std::max<std::uint64_t>(bytes, 1), je53::kPage));
  }
  [[nodiscard]] std::uint64_t malloc_usable_size(P&, Addr mem) const {
    return mem == 0 ? 0 : je53::usable_size(inward(mem));
  }
  // The libc's own, which holds nothing here: they succeed without effect.
  bool malloc_trim(P&, std::uint64_t) { return false; }
  int mallopt(P&, Param, std::int64_t) { return 1; }
  // What a thread leaves behind: its cache is emptied and its arena has one thread less.
  void thread_exit(P& p);

  [[nodiscard]] unsigned arenas() const { return static_cast<unsigned>(arenas_.size()); }

 private:
  using Frame = typename P::Frame;
  struct Arena {
    je53::Hooks hooks;  // first: the library gives its address
    Jemalloc53* owner;
    unsigned number = 0;  // in the library
    unsigned threads = 0;
    std::uint64_t born = 0;
    std::int64_t dirty_decay_ms, muzzy_decay_ms;
    bool in_kernel = false;  // some thread maps or commits; grow_mtx is held
    typename P::Lock grow;
  };
  enum ThreadWord : unsigned {
    kCache,
    kArena,
    kTicks
  };  // the first two plus one; 0: none yet

  static constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) {
    return (n + to - 1) & ~(to - 1);
  }
  static constexpr std::uint64_t kBiasUnit = je53::kWindow / 4;
  [[nodiscard]] std::uint64_t inward(Addr a) const { return a + shift_; }
  [[nodiscard]] Addr outward(std::uint64_t a) const { return a - shift_; }
  [[nodiscard]] bool fits(Addr a, std::uint64_t size);
  [[nodiscard]] std::uint64_t page_of(std::uint64_t inside) const {
    return (inside - window_) / je53::kPage;
  }

  // threads and arenas
  Arena* new_arena(P& p, bool oversize);
  Arena* arena_of_thread(P& p);
  Arena* arena_for(P& p, std::uint64_t bytes);
  int cache_of(P& p);
  void tick(P& p, Arena& arena);
  void decay(P& p, Arena& arena);

  // One call of the library.
  template <typename Call>
  auto inside(P& p, Call call) {
    current_ = &p;
    ++calls_;
    const auto answer = call();
    --calls_;
    return answer;
  }
  void wait_for(P& p, Arena& arena);
  Addr allocate(P& p, std::uint64_t bytes, unsigned lg_alignment, bool zero);
  void mark_written(Addr mem, std::uint64_t bytes);
  [[nodiscard]] bool written(Addr mem, std::uint64_t bytes) const;
  void mark_clean(std::uint64_t start, std::uint64_t length);

  // From within the library: lets the process do something that takes time.
  template <typename Call>
  static auto outside(Arena& arena, Call call) {
    Jemalloc53& self = *arena.owner;
    P& me = *self.current_;
    je53::Context mine;
    self.idle_.restore();
    const auto answer = call(self, me);
    mine.restore();
    self.current_ = &me;
    return answer;
  }
  template <typename Call>
  static auto growing(Arena& arena, Call call) {
    return outside(arena, [&](Jemalloc53& self, P& p) {
      arena.in_kernel = true;
      p.lock(arena.grow);
      const auto answer = call(self, p);
      p.unlock(arena.grow);  // may take time, too
      arena.in_kernel = false;
      return answer;
    });
  }
  Addr map(P& p, Addr at, std::uint64_t size, std::uint64_t alignment);
  [[nodiscard]] static Arena& of(je53::Hooks* hooks) {
    return *reinterpret_cast<Arena*>(hooks);
  }
  [[nodiscard]] static std::uint64_t number(void* at) {
    return reinterpret_cast<std::uint64_t>(at);
  }
  static je53::Hooks hooks();
  static bool give_back(Arena& arena, std::uint64_t start, std::uint64_t length,
                        int advice);
  bool vrange_all(P& p, std::uint64_t start, std::uint64_t length, int mode);
  static bool set_volatile(Arena& arena, std::uint64_t start, std::uint64_t length);
  static bool set_nonvolatile(Arena& arena, std::uint64_t start, std::uint64_t length);

  const je::Settings settings_;
  const unsigned most_arenas_;
  const std::uint64_t window_;
  std::uint64_t shift_ = 0;  // from the process's addresses to the library's, once known
  bool shifted_ = false, dying_ = false;
  unsigned calls_ = 0;  // of the library, not yet over
  P* current_ = nullptr;
  je53::IdleThread known_;  // before idle_
  je53::Context idle_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::unique_ptr<Arena> oversize_;
  std::vector<unsigned> caches_;
  SparseBits written_;  // pages that may hold something
};

}  // namespace faultline::alloc
