// SPDX-License-Identifier: Apache-2.0
//
// From the name of an allocator to the object, for either platform.
#pragma once

#include "allocator/jemalloc/jemalloc.h"
#include "allocator/jemalloc53/jemalloc53.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "scenarios/run/scenario.h"
#include "sim/check.h"

namespace faultline::scenario {

// Makes the allocator, calls use(allocator), and drops it.
template <typename P, typename Use>
void with_allocator(P& platform, const AllocatorSpec& spec, Use use) {
  if (spec.name == "jemalloc") {
    alloc::Jemalloc<P> allocator(platform, spec.jemalloc);
    use(allocator);
    return;
  }
  if (spec.name == "jemalloc-5.3") {
    alloc::Jemalloc53<P> allocator(platform, spec.jemalloc);
    use(allocator);
    return;
  }
  const alloc::ReleaseProfile* const release = alloc::find_release(spec.release);
  FAULTLINE_CHECK(release != nullptr);
  alloc::Ptmalloc<P> allocator(platform, *release, spec.settings);
  use(allocator);
}

}  // namespace faultline::scenario
