// SPDX-License-Identifier: Apache-2.0
//
// Walks through small objects that live long, in an order that has nothing to do with
// where they lie: a program whose time depends on its TLB.
//
// Objects of 16 to 136 bytes are allocated until they take `heap` bytes, linked into one
// random cycle, and followed for `laps` rounds with `work` instructions at each link.
// Nothing is freed before the program ends.
//
// An analogue, not a copy: it stands for the integer programs of SPEC CPU2017 as far as a
// huge page is concerned, a working set of 0.1 to 4 GB of small objects that spends 5 to 10
// % of its cycles in page walks when pages are small.  Model: `work` also stands for the
// misses of the data caches between two objects, which the model doesn't know.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/platform.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace spec_like_places {
inline constexpr alloc::Place kBuild{"build_objects"};
inline constexpr alloc::Place kChase{"chase"};
}  // namespace spec_like_places

// xorshift64*: the same numbers everywhere.
class SpecLikeRandom {
 public:
  std::uint64_t below(std::uint64_t n) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545'f491'4f6c'dd1d >> 32) * n >> 32;
  }

 private:
  std::uint64_t state_ = 0x9e37'79b9'7f4a'7c15;
};

template <alloc::Platform P, typename Allocator>
class SpecLike {
 public:
  SpecLike(P& p, Allocator& heap) : p_(p), heap_(heap) {}

  // Objects that take `bytes` with the allocator's own.  False without memory.
  bool build(std::uint64_t bytes) {
    const typename P::Frame frame(p_, spec_like_places::kBuild);
    for (std::uint64_t taken = 0; taken < bytes;) {
      const std::uint64_t size = 16 + 8 * random_.below(16);
      const alloc::Addr object = heap_.malloc(p_, size);
      if (object == 0) return false;
      p_.template store<std::uint64_t>(object + kValue, objects_.size());
      objects_.push_back(object);
      taken += size + kOverhead;
    }
    return true;
  }
  // One cycle through all of them (Sattolo's shuffle).
  void link() {
    const typename P::Frame frame(p_, spec_like_places::kBuild);
    std::vector<alloc::Addr> order = objects_;
    for (std::uint64_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[random_.below(i)]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      p_.cycles(kLinkInstructions);
      p_.template store<alloc::Addr>(order[i], order[i + 1 == order.size() ? 0 : i + 1]);
    }
  }
  // The sum of the values met.
  std::uint64_t chase(std::uint64_t steps, std::uint64_t work, Progress& progress) {
    constexpr std::uint64_t kStep = 1 << 16;
    const typename P::Frame frame(p_, spec_like_places::kChase);
    std::uint64_t sum = 0;
    alloc::Addr at = objects_.front();
    for (std::uint64_t i = 0; i < steps; ++i) {
      p_.cycles(work);
      sum += p_.template load<std::uint64_t>(at + kValue);
      at = p_.template load<alloc::Addr>(at);
      if (i % kStep == 0) progress.done.store(i, std::memory_order_relaxed);
    }
    return sum;
  }
  [[nodiscard]] std::uint64_t objects() const { return objects_.size(); }

 private:
  static constexpr std::uint64_t kValue = 8, kOverhead = 8, kLinkInstructions = 10;

  P& p_;
  Allocator& heap_;
  SpecLikeRandom random_;
  std::vector<alloc::Addr> objects_;  // in the order of allocation
};

template <alloc::Platform P, typename Allocator>
Outcome spec_like(P& p, Allocator& heap, const Params& params, Progress& progress) {
  Outcome out;
  SpecLike<P, Allocator> program(p, heap);
  if (!program.build(params.bytes("heap"))) {
    out.failure = "malloc answered NULL";
    return out;
  }
  program.link();
  const auto laps = static_cast<std::uint64_t>(params.number("laps"));
  const std::uint64_t n = program.objects();
  progress.total = laps * n;
  const std::uint64_t sum =
      program.chase(laps * n, static_cast<std::uint64_t>(params.number("work")), progress);
  if (sum != laps * (n * (n - 1) / 2))
    out.failure = "objects lost what was written to them";
  out.counts["objects"] = n;
  out.counts["steps"] = laps * n;
  return out;
}

}  // namespace faultline::workloads
