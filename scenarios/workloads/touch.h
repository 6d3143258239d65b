// SPDX-License-Identifier: Apache-2.0
//
// Maps one anonymous area and touches one byte at a regular distance: the smallest program
// that shows what a huge page of a given size does to memory use and to the number of
// faults.
#pragma once

#include <cstdint>
#include <string>

#include "allocator/platform.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

inline constexpr alloc::Place kTouchPlace{"touch_area"};

template <alloc::Platform P>
Outcome touch(P& p, const Params& params) {
  const typename P::Frame frame(p, kTouchPlace);
  Outcome out;
  const std::uint64_t length = params.bytes("map");
  const alloc::SysValue area =
      p.mmap(0, length, alloc::sys::kProtRead | alloc::sys::kProtWrite,
             alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
  if (!area.ok()) {
    out.failure = "mmap answered errno " + std::to_string(area.error);
    return out;
  }
  const std::uint64_t stride = params.bytes("stride");
  const std::uint64_t fit = (length - 1) / stride + 1;
  const std::uint64_t asked = params.bytes("count");
  const std::uint64_t count = asked == 0 || asked > fit ? fit : asked;
  const alloc::Touch kind =
      params.choice("access") == "read" ? alloc::Touch::kRead : alloc::Touch::kWrite;
  for (std::uint64_t i = 0; i < count; ++i) p.touch(area.value + i * stride, 1, kind);
  out.counts["touches"] = count;
  return out;
}

}  // namespace faultline::workloads
