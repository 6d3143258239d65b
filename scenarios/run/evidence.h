// SPDX-License-Identifier: Apache-2.0
//
// What a finished run left in its engine, as a value: where the time of all tasks went, and
// who waited for whom.  The tables, the explanation and the comparison of variants are made
// of this, long after the engine is gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/engine.h"

namespace faultline::scenario {

// Function names, outermost first.
using Frames = std::vector<std::string>;

struct Evidence {
  Duration elapsed;
  unsigned cpus = 0, tasks = 0;
  // Sums over the program's tasks; user + sys == running + spinning.
  Duration user, sys, running, spinning, lock_wait, runnable, sleeping;
  Duration kernel_threads;  // on a CPU: khugepaged and the like
  Duration pressure;        // on a CPU: the process of [pressure]

  struct Stack {
    Frames frames;
    std::size_t user_frames = 0;         // those before the kernel's
    Duration busy, spinning, lock_wait;  // spent in the innermost function itself
  };
  std::vector<Stack> stacks;  // in order of first use

  struct Blame {
    Frames waiter, holder;
    LockMode waiter_mode = LockMode::kWrite, holder_mode = LockMode::kWrite;
    std::uint64_t count = 0;
    Duration wait;
  };
  struct Lock {
    std::string name;
    LockStats::Side write, read;
    std::vector<Blame> blames;
    [[nodiscard]] Duration wait() const { return write.wait + read.wait; }
  };
  std::vector<Lock> locks;  // in order of first use

  [[nodiscard]] Duration busy() const { return running + spinning; }
  [[nodiscard]] Duration lives() const { return busy() + lock_wait + runnable + sleeping; }
};

[[nodiscard]] bool is_kernel_thread(std::string_view name);
// A task of the program that is measured.
[[nodiscard]] bool is_of_program(std::string_view name);

// `elapsed`: of the workload; the engine's run is over.
[[nodiscard]] Evidence gather_evidence(Engine& engine, Duration elapsed);

}  // namespace faultline::scenario
