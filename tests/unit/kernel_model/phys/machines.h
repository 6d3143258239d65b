// SPDX-License-Identifier: Apache-2.0
//
// Small machines for the tests of physical memory.
#pragma once

#include <cstdint>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"

namespace faultline::kernel::testing {

inline constexpr std::uint64_t kMiB = 1024 * 1024;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// One node of 4 KiB pages with blocks of up to 4 MiB, as x86.
inline arch::Profile machine_4k(std::uint64_t bytes, unsigned cpus = 1) {
  arch::Profile p;
  p.name = "toy-4k";
  p.geometry.page_shift = 12;
  p.geometry.pmd_shift = 21;
  p.geometry.max_order = 10;
  p.cpus = cpus;
  p.node_of_cpu.assign(cpus, 0);
  p.nodes = {{.memory_bytes = bytes, .free_bytes = bytes}};
  p.node_distance = {{10}};
  return p;
}

// arm64 with 64 KiB pages: the huge page is the largest block.
inline arch::Profile machine_64k(std::uint64_t bytes, unsigned cpus = 4) {
  arch::Profile p = machine_4k(bytes, cpus);
  p.name = "toy-64k";
  p.geometry.page_shift = 16;
  p.geometry.pmd_shift = 29;
  p.geometry.max_order = 13;
  return p;
}

// `nodes` nodes of `bytes` each, one CPU a node, distances as given.
inline arch::Profile numa_4k(std::uint64_t bytes, std::vector<std::vector<int>> distance) {
  const auto nodes = static_cast<unsigned>(distance.size());
  arch::Profile p = machine_4k(bytes, nodes);
  p.nodes.assign(nodes, {.memory_bytes = bytes, .free_bytes = bytes});
  for (unsigned n = 0; n < nodes; ++n) p.node_of_cpu[n] = static_cast<int>(n);
  p.node_distance = std::move(distance);
  return p;
}

inline KernelConfig never() {
  KernelConfig c;
  c.thp_enabled = ThpEnabled::kNever;
  return c;
}

}  // namespace faultline::kernel::testing
