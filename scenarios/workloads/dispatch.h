// SPDX-License-Identifier: Apache-2.0
//
// From a workload's name to its code, for any platform and allocator.
#pragma once

#include "scenarios/workloads/ebizzy.h"
#include "scenarios/workloads/give_back_pages.h"
#include "scenarios/workloads/hugepages.h"
#include "scenarios/workloads/madv_free_pressure.h"
#include "scenarios/workloads/mallocstress.h"
#include "scenarios/workloads/ops.h"
#include "scenarios/workloads/spec_like.h"
#include "scenarios/workloads/touch.h"
#include "scenarios/workloads/vrange_cache.h"
#include "scenarios/workloads/vrange_micro.h"
#include "scenarios/workloads/workload.h"
#include "sim/check.h"

namespace faultline::workloads {

template <alloc::ThreadedPlatform P, typename Allocator>
Outcome run(P& p, Allocator& allocator, const Params& params, Progress& progress) {
  const std::string_view name = params.decl().name;
  if (name == "ebizzy") return ebizzy(p, allocator, params, progress);
  if (name == "hugepages") return hugepages(p, allocator, params, progress);
  if (name == "mallocstress") return mallocstress(p, allocator, params, progress);
  if (name == "ops") return ops(p, allocator, params);
  if (name == "spec-like") return spec_like(p, allocator, params, progress);
  if (name == "touch") return touch(p, params);
  if (name == "give-back") return give_back_pages(p, params, progress);
  if (name == "madv-free-pressure") return madv_free_pressure(p, params, progress);
  if (name == "vrange-cache") return vrange_cache(p, params, progress);
  if (name == "vrange-micro") return vrange_micro(p, params, progress);
  FAULTLINE_CHECK(!"a workload that is declared but not dispatched");
  return {};
}

}  // namespace faultline::workloads
