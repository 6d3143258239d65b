// SPDX-License-Identifier: Apache-2.0
//
// Runs a program on two sides and says where they first differ; makes a failing program
// small.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tests/oracle/outcome.h"

namespace faultline::oracle {

struct Divergence {
  std::size_t at = 0;  // index of the operation after which the sides differ
  std::string what;    // for people: the operation, both answers
};

using MakeSide = std::function<std::unique_ptr<Side>()>;

struct CompareOptions {
  // Whole states (smaps, pages, contents) are compared after each n-th operation and at the
  // end; answers after each one.
  unsigned look_every = 16;
  bool counters = false;  // /proc/vmstat, too: what others do on the machine counts as well
};

[[nodiscard]] std::optional<Divergence> compare(const Program& program, Side& reference,
                                                Side& tested,
                                                const CompareOptions& options);

// The smallest program found that still diverges: cuts runs of operations, then single
// ones. Operations of processes that a cut fork never made are dropped with it.  Looking
// empties the live kernel's batches, so a shorter program may need the same pauses between
// looks to fail.
[[nodiscard]] Program shrink(Program program, const MakeSide& reference,
                             const MakeSide& tested, const CompareOptions& options);

}  // namespace faultline::oracle
