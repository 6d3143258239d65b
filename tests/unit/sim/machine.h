// SPDX-License-Identifier: Apache-2.0
// Small machines for the tests of the engine.
#pragma once

#include <vector>

#include "sim/engine.h"

namespace faultline {

inline MachineShape cpus(int n) {
  return {.node_of_cpu = std::vector<int>(static_cast<std::size_t>(n)),
          .node_distance = {}};
}

// Every picosecond is accounted for, once.
struct Sums {
  Duration in_tree, in_usage, lifetimes, busy;
};
inline Sums sums(Engine& engine) {
  Sums s;
  for (const auto& node : engine.centres().nodes())
    for (Duration d : node.time) s.in_tree += d;
  for (const auto& task : engine.tasks()) {
    for (Duration d : task->usage().state) s.in_usage += d;
    s.lifetimes += task->now() - task->started();
    s.busy += task->usage().user + task->usage().sys;
  }
  return s;
}

}  // namespace faultline
