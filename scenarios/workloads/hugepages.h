// SPDX-License-Identifier: Apache-2.0
//
// A hash map that is filled and thrown away: the test program of the series that taught
// glibc's malloc about huge pages.
//
// reserve(elements) makes one large array; each try_emplace(i, i) makes a node of 24 bytes;
// nothing is freed before the end.  So the heap grows without a hole, and its huge pages
// depend only on where the break starts and by how much it grows.
//
// Stands for: hugepages.cc of "malloc: improve THP effectiveness" (libc-alpha, August 2021)
// with libstdc++ 12's std::unordered_map<size_t, size_t>; written anew.  Model: the map's
// own members (on main's stack in the program) lie in static storage.
#pragma once

#include <cstdint>

#include "allocator/platform.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace hugepages_places {
inline constexpr alloc::Place kInsert{"try_emplace"};
inline constexpr alloc::Place kReserve{"reserve"};
inline constexpr alloc::Place kStart{"_dl_start"};
inline constexpr alloc::Place kDestroy{"~unordered_map"};
}  // namespace hugepages_places

// std::unordered_map as libstdc++ lays it out: a bucket holds the node before its first
// one; all nodes are one list, new ones at the front of their bucket.
template <alloc::Platform P, typename Allocator>
class HashMap {
 public:
  using Addr = alloc::Addr;

  HashMap(P& p, Allocator& heap) : p_(p), heap_(heap), before_begin_(p.static_storage(8)) {
    p_.template store<Addr>(before_begin_, 0);
  }

  // False without memory.
  bool reserve(std::uint64_t buckets) {
    const typename P::Frame frame(p_, hugepages_places::kReserve);
    count_ = buckets;
    buckets_ = heap_.malloc(p_, buckets * kWord);
    if (buckets_ == 0) return false;
    p_.set(buckets_, 0, buckets * kWord);
    return true;
  }
  // False without memory.  The key must be new.
  bool emplace(std::uint64_t key, std::uint64_t value) {
    p_.cycles(kInsertInstructions);
    const Addr bucket = bucket_of(key);
    const Addr before = p_.template load<Addr>(bucket);
    const Addr node = heap_.malloc(p_, kNodeBytes);
    if (node == 0) return false;
    p_.template store<std::uint64_t>(node + kKey, key);
    p_.template store<std::uint64_t>(node + kValue, value);
    if (before != 0) {
      p_.template store<Addr>(node, p_.template load<Addr>(before));
      p_.template store<Addr>(before, node);
      return true;
    }
    const Addr first = p_.template load<Addr>(before_begin_);
    p_.template store<Addr>(node, first);
    p_.template store<Addr>(before_begin_, node);
    // The hash isn't kept: the bucket of the node that was first is found from its key.
    if (first != 0)
      p_.template store<Addr>(bucket_of(p_.template load<std::uint64_t>(first + kKey)),
                              node);
    p_.template store<Addr>(bucket, before_begin_);
    return true;
  }
  // Frees all nodes, then the array.  Answers how many nodes had the value of their key.
  std::uint64_t destroy() {
    const typename P::Frame frame(p_, hugepages_places::kDestroy);
    std::uint64_t right = 0;
    for (Addr node = p_.template load<Addr>(before_begin_); node != 0;) {
      p_.cycles(kDestroyInstructions);
      const Addr next = p_.template load<Addr>(node);
      right += p_.template load<std::uint64_t>(node + kKey) ==
               p_.template load<std::uint64_t>(node + kValue);
      heap_.free(p_, node);
      node = next;
    }
    p_.set(buckets_, 0, count_ * kWord);
    heap_.free(p_, buckets_);
    return right;
  }

 private:
  static constexpr std::uint64_t kWord = 8, kKey = 8, kValue = 16, kNodeBytes = 24;
  // About what g++ -O2 makes of them, a division by the bucket count among them.
  static constexpr std::uint64_t kInsertInstructions = 60, kDestroyInstructions = 8;

  [[nodiscard]] Addr bucket_of(std::uint64_t key) const {
    return buckets_ + key % count_ * kWord;
  }

  P& p_;
  Allocator& heap_;
  Addr before_begin_;
  Addr buckets_ = 0;
  std::uint64_t count_ = 0;
};

// What randomisation of the address space would do: the break starts higher, and the first
// mapping lies lower.
template <alloc::Platform P>
void shift_layout(P& p, const Params& params) {
  if (const auto shift = params.number("brk_shift"); shift != 0) p.sbrk(shift);
  if (const auto shift = params.bytes("mmap_shift"); shift != 0)
    p.mmap(0, shift, alloc::sys::kProtNone,
           alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
}

// What comes before main: the loader and the libraries touch so many pages, in base pages.
template <alloc::Platform P>
void start_program(P& p, std::uint64_t pages) {
  if (pages == 0) return;
  const typename P::Frame frame(p, hugepages_places::kStart);
  const std::uint64_t bytes = pages * p.facts().page_size;
  const alloc::SysValue area =
      p.mmap(0, bytes, alloc::sys::kProtRead | alloc::sys::kProtWrite,
             alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
  if (!area.ok()) return;
  p.madvise(area.value, bytes, alloc::sys::kMadvNohugepage);
  p.touch(area.value, bytes, alloc::Touch::kWrite);
}

template <alloc::Platform P, typename Allocator>
Outcome hugepages(P& p, Allocator& heap, const Params& params, Progress& progress) {
  constexpr std::uint64_t kEmergencyPool = 72'704;  // of libstdc++, when the program starts
  constexpr std::uint64_t kStep = 1 << 16;
  Outcome out;
  const auto elements = static_cast<std::uint64_t>(params.number("elements"));
  start_program(p, params.bytes("startup_pages"));
  shift_layout(p, params);
  progress.total = elements;
  HashMap<P, Allocator> map(p, heap);
  bool room = heap.malloc(p, kEmergencyPool) != 0 &&
              map.reserve(static_cast<std::uint64_t>(params.number("buckets")));
  {
    const typename P::Frame frame(p, hugepages_places::kInsert);
    for (std::uint64_t i = 0; room && i < elements; ++i) {
      room = map.emplace(i, i);
      if (i % kStep == 0) progress.done.store(i, std::memory_order_relaxed);
    }
  }
  if (!room) {
    out.failure = "malloc answered NULL";
    return out;
  }
  out.counts["inserted"] = elements;
  if (map.destroy() != elements) out.failure = "nodes lost what was written to them";
  return out;
}

}  // namespace faultline::workloads
