// SPDX-License-Identifier: Apache-2.0
//
// Is an arena sound?  For tests: walks the map of each chunk that has a free run and holds
// it against the tree of free runs and the counters.
#pragma once

#include <set>
#include <string>

#include "allocator/jemalloc/jemalloc.h"

namespace faultline::alloc {

template <Platform P>
class JemallocCheck {
 public:
  JemallocCheck(P& p, const Jemalloc<P>& heap) : p_(p), h_(heap), g_(heap.geometry_) {}

  // What is wrong first; empty: nothing.
  std::string run() {
    for (unsigned i = 0; problem_.empty() && i < h_.narenas_; ++i)
      if (h_.booted_ && h_.arena_at(p_, i) != 0) check_arena(h_.arena_at(p_, i));
    return problem_;
  }
  [[nodiscard]] std::uint64_t runs_seen() const { return runs_seen_; }

 private:
  using Heap = Jemalloc<P>;
  std::uint64_t get(Addr at) { return p_.template load<std::uint64_t>(at); }
  void expect(bool good, const char* what) {
    if (!good && problem_.empty()) problem_ = what;
  }

  void check_arena(Addr arena) {
    std::set<Addr> entries, chunks;
    Addr before = 0;
    std::uint64_t size_before = 0;
    h_.runs_avail(p_, arena).for_each([&](Addr e) {
      const std::uint64_t size = je::MapBits{get(e + je::chunk::kEntryBits)}.size();
      expect(size > size_before || (size == size_before && e > before),
             "free runs are out of order");
      before = e;
      size_before = size;
      entries.insert(e);
      chunks.insert(g_.chunk_of(e));
    });
    std::uint64_t sum[je::kRunStates] = {}, active = 0;
    for (const Addr c : chunks) active += check_chunk(arena, c, entries, sum);
    const je::ArenaPages pages = h_.pages_of(p_, arena);
    for (unsigned s = 0; s < je::kRunStates; ++s)
      expect(sum[s] == pages.free[s], "an arena's count of free pages is wrong");
    // Chunks without a free run are not seen.
    expect(pages.active >= active, "fewer pages are active than are allocated");
    expect(entries.empty(), "a free run in the tree is in no map");
  }

  std::uint64_t check_chunk(Addr arena, Addr c, std::set<Addr>& entries,
                            std::uint64_t* sum) {
    std::uint64_t active = 0, avail = 0, pairs = 0, in[je::kRunStates] = {};
    bool free_before = false;
    je::RunState state_before{};
    expect(get(c + je::chunk::kArena) == arena, "a chunk names another arena");
    for (std::uint64_t page = g_.first_page; page < g_.chunk_pages && problem_.empty();) {
      const je::MapBits b = h_.bits(p_, c, page);
      const bool small = b.allocated() && !b.large();
      const std::uint64_t size = small ? h_.classes_[b.bin()].run : b.size();
      const std::uint64_t pages = size >> g_.page_shift;
      expect(pages > 0 && page + pages <= g_.chunk_pages, "a run leaves its chunk");
      if (b.allocated()) {
        active += pages;
        if (small) check_small_run(c + (page << g_.page_shift), b.bin());
      } else {
        ++avail;
        in[static_cast<unsigned>(b.state())] += pages;
        expect(h_.bits(p_, c, page + pages - 1).size() == size,
               "the ends of a free run differ");
        expect(entries.erase(g_.entry(c, page)) == 1, "a free run is not in the tree");
        if (free_before && state_before == b.state())
          expect(false, "neighbouring free runs of one state");
        pairs += free_before ? 1 : 0;
        state_before = b.state();
      }
      free_before = !b.allocated();
      page += pages;
      ++runs_seen_;
    }
    expect(get(c + je::chunk::kRunsAvail) == avail, "a chunk's number of free runs");
    expect(get(c + je::chunk::kRunsAdjacent) == pairs, "a chunk's number of neighbours");
    for (unsigned s = 0; s < je::kRunStates; ++s) {
      expect(get(c + je::chunk::kPagesIn + je::kWord * s) == in[s],
             "a chunk's count of free pages");
      sum[s] += in[s];
    }
    return active;
  }

  void check_small_run(Addr run, unsigned bin) {
    const je::BinInfo& info = h_.classes_[bin];
    std::uint32_t free = 0;
    for (std::uint32_t i = 0; i < info.bitmap_words; ++i)
      free += static_cast<std::uint32_t>(
          std::popcount(get(run + je::run::kBitmap + i * je::kWord)));
    expect(free == p_.template load<std::uint32_t>(run + je::run::kFree),
           "a small run's number of free regions");
    expect(free < info.regions, "an empty small run was kept");
  }

  P& p_;
  const Heap& h_;
  const je::Geometry& g_;
  std::string problem_;
  std::uint64_t runs_seen_ = 0;
};

}  // namespace faultline::alloc
