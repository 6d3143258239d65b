// SPDX-License-Identifier: Apache-2.0
//
// An application's cache in memory that it can do without: what is lost is made again.
//
// Requests come for entries, some far more often than others.  An entry is made at its
// first request, which takes its time; later ones read it.  Between uses the cache is
//   none            kept, as any memory
//   dontneed        given back at once: every request makes its entry anew
//   vrange          marked volatile; a request un-marks its entry, is told whether it was
//                   lost, uses it and marks it again
//   vrange-handler  marked volatile and read as it is; who hits a purged page gets SIGBUS,
//                   and the handler un-marks the entry, makes it anew and marks it again
// Each page of an entry holds the entry's number: a request that finds another one has been
// cheated, and the run fails.
//
// Stands for: the use that J. Stultz and M. Kim gave for volatile ranges besides allocators
// (browsers' caches of decoded images; linux-mm, 2012-2014).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/workloads/give_back.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

inline constexpr std::string_view kCachePolicies[] = {"none", "dontneed", "vrange",
                                                      "vrange-handler"};

namespace vrange_cache_places {
inline constexpr alloc::Place kRequest{"serve_request"};
inline constexpr alloc::Place kMake{"make_entry"};
}  // namespace vrange_cache_places

template <alloc::ThreadedPlatform P>
class VrangeCache {
 public:
  VrangeCache(P& p, const Params& params)
      : calls_(p),
        policy_(params.choice("policy")),
        entries_(params.bytes("entries")),
        bytes_(params.bytes("entry")),
        make_cycles_(params.bytes("make_cycles")),
        made_(entries_) {}

  bool set_up(P& p) {
    const alloc::SysValue map =
        p.mmap(0, entries_ * bytes_, alloc::sys::kProtRead | alloc::sys::kProtWrite,
               alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
    area_ = map.value;
    return map.ok() && (policy_ != "vrange-handler" ||
                        p.set_bus_handler({&VrangeCache::recover, this}));
  }

  void request(P& p, std::uint64_t entry) {
    const typename P::Frame frame(p, vrange_cache_places::kRequest);
    ++requests;
    const alloc::Addr at = area_ + entry * bytes_;
    const bool volatile_now = made_[entry] && policy_ == "vrange";
    if (volatile_now && calls_.unmark(p, at, bytes_)) {
      ++lost;
      made_[entry] = false;
    }
    if (!made_[entry]) {
      make(p, entry);
      if (policy_ == "vrange-handler") mark(p, at);
    }
    read(p, entry);
    if (policy_ == "vrange") mark(p, at);
    if (policy_ == "dontneed") {
      if (p.madvise(at, bytes_, alloc::sys::kMadvDontneed) != 0) ++refused;
      made_[entry] = false;
    }
  }

  std::uint64_t requests = 0, made = 0, lost = 0, cheated = 0, refused = 0;

 private:
  static bool recover(P& p, alloc::Addr at, void* self) {
    auto& cache = *static_cast<VrangeCache*>(self);
    if (at < cache.area_ || at >= cache.area_ + cache.entries_ * cache.bytes_) return false;
    const std::uint64_t entry = (at - cache.area_) / cache.bytes_;
    const alloc::Addr start = cache.area_ + entry * cache.bytes_;
    ++cache.lost;
    cache.calls_.unmark(p, start, cache.bytes_);
    cache.make(p, entry);
    cache.mark(p, start);
    return true;
  }

  void mark(P& p, alloc::Addr at) {
    if (!calls_.mark(p, at, bytes_)) ++refused;
  }
  void make(P& p, std::uint64_t entry) {
    const typename P::Frame frame(p, vrange_cache_places::kMake);
    p.cycles(make_cycles_);
    const std::uint64_t page = p.facts().page_size;
    for (std::uint64_t i = 0; i < bytes_; i += page)
      p.template store<std::uint64_t>(area_ + entry * bytes_ + i, entry + 1);
    made_[entry] = true;
    ++made;
  }
  void read(P& p, std::uint64_t entry) {
    const std::uint64_t page = p.facts().page_size;
    for (std::uint64_t i = 0; i < bytes_; i += page)
      if (p.template load<std::uint64_t>(area_ + entry * bytes_ + i) != entry + 1)
        ++cheated;
    p.cycles(bytes_ / sizeof(std::uint64_t));
  }

  VolatileCalls<P> calls_;
  std::string_view policy_;
  std::uint64_t entries_, bytes_, make_cycles_;
  std::vector<bool> made_;
  alloc::Addr area_ = 0;
};

template <alloc::ThreadedPlatform P>
Outcome vrange_cache(P& p, const Params& params, Progress& progress) {
  VrangeCache<P> cache(p, params);
  Outcome out;
  if (!cache.set_up(p)) {
    out.failure = "the cache could not be set up";
    return out;
  }
  const std::uint64_t entries = params.bytes("entries"),
                      requests = params.bytes("requests"), pause = params.bytes("pause_us");
  progress.total = requests;
  // Four of five requests go to the first fifth of the entries.
  std::uint64_t state = 1;
  for (std::uint64_t i = 0; i < requests; ++i) {
    state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    const std::uint64_t r = state >> 33;
    const std::uint64_t hot = entries / 5 + 1;
    cache.request(p, r % 5 != 0 ? (r / 5) % hot : (r / 5) % entries);
    if (pause != 0) p.usleep(pause);
    progress.done.fetch_add(1, std::memory_order_relaxed);
  }
  out.counts["requests"] = cache.requests;
  out.counts["entries-made"] = cache.made;
  out.counts["entries-lost"] = cache.lost;
  if (cache.cheated != 0)
    out.failure = std::to_string(cache.cheated) + " pages were not what the entry holds";
  if (cache.refused != 0)
    out.failure = std::to_string(cache.refused) + " calls were refused";
  return out;
}

}  // namespace faultline::workloads
