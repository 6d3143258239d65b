// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a program gives memory back that it may want again, as calls: what
// comes before the next use, and what after the last.
//
//   none      nothing: the memory is kept
//   dontneed  madvise(MADV_DONTNEED): gone at once, the next touch faults on zeros
//   free      madvise(MADV_FREE): gone when memory is short, unless it is written before
//   vrange    marked volatile: gone when memory is short, unless it is un-marked before
#pragma once

#include <cstdint>
#include <string_view>

#include "allocator/platform.h"

namespace faultline::workloads {

inline constexpr std::string_view kGiveBackPolicies[] = {"none", "dontneed", "free",
                                                         "vrange"};

// vrange in both of its conventions.
template <alloc::Platform P>
class VolatileCalls {
 public:
  explicit VolatileCalls(P& p) : purged_at_(p.static_storage(sizeof(std::uint64_t))) {}

  // False: the kernel refused, or did only a part.
  bool mark(P& p, alloc::Addr at, std::uint64_t bytes) const {
    return done(p,
                p.vrange(at, bytes, alloc::sys::kVrangeVolatile, alloc::sys::kVrangeFull),
                bytes);
  }
  // True: something was lost.
  bool unmark(P& p, alloc::Addr at, std::uint64_t bytes) const {
    const bool counts = p.facts().vrange_version >= kCountsBytes;
    const alloc::SysValue r = p.vrange(at, bytes, alloc::sys::kVrangeNovolatile,
                                       counts ? purged_at_ : alloc::sys::kVrangeFull);
    if (!r.ok()) return false;
    return counts ? p.template load<std::uint32_t>(purged_at_) != 0 : r.value == 1;
  }

 private:
  static constexpr unsigned kCountsBytes = 8;  // v8
  static bool done(P& p, const alloc::SysValue& r, std::uint64_t bytes) {
    return r.ok() && (p.facts().vrange_version < kCountsBytes || r.value == bytes);
  }
  alloc::Addr purged_at_;
};

// One policy, applied to blocks.
template <alloc::Platform P>
class GiveBack {
 public:
  GiveBack(P& p, std::string_view policy) : volatile_(p), policy_(policy) {}

  // Before the block is used again; true if something of it was lost (as far as the kernel
  // tells).
  bool take(P& p, alloc::Addr block, std::uint64_t bytes) const {
    return policy_ == "vrange" && volatile_.unmark(p, block, bytes);
  }
  // False: the kernel refused.
  bool give(P& p, alloc::Addr block, std::uint64_t bytes) const {
    if (policy_ == "dontneed")
      return p.madvise(block, bytes, alloc::sys::kMadvDontneed) == 0;
    if (policy_ == "free") return p.madvise(block, bytes, alloc::sys::kMadvFree) == 0;
    return policy_ != "vrange" || volatile_.mark(p, block, bytes);
  }

 private:
  VolatileCalls<P> volatile_;
  std::string_view policy_;
};

}  // namespace faultline::workloads
