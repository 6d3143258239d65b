// SPDX-License-Identifier: Apache-2.0
//
// Memory pressure from outside: a second process that keeps a machine short of memory while
// the workload runs.
//
// It first dirties memory until no more is free than asked for; then the workload starts.
// From then on it goes on dirtying pages at its rate: new ones as long as more than that is
// free, else it gives back its oldest for each new one.  So free memory stays near the
// target from above and below, kswapd is woken again and again, and what others have marked
// as expendable goes, while CPUs and memory bandwidth are shared as with any busy
// neighbour.  Without a rate its threads are busy all the time.
//
// Model: no workload's own pressure is known from the mailing lists, so this is the hog's
// whole definition, not a copy of somebody's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernel_model/kernel.h"
#include "scenarios/run/scenario.h"
#include "sim/task.h"

namespace faultline::scenario {

// Tasks of the hog are named so; their time is in no sum of the workload's.
inline constexpr std::string_view kHogName = "hog";

class Hog {
 public:
  // `kernel` must outlive the object.
  Hog(kernel::Kernel& kernel, const PressureSpec& spec);

  // Starts its threads; `ready` is called by the first one that finds the target reached.
  void start(std::function<void()> ready);
  // Its threads end after their present step.
  void stop() { stopped_ = true; }

 private:
  // One thread's part of the address space: pages [tail, head) are its own.
  struct Ring {
    kernel::VirtAddr start;
    std::uint64_t bytes = 0, head = 0, tail = 0;
  };
  void run(Task& task);
  bool step(Task& task, Ring& ring);
  bool write(Task& task, Ring& ring);
  [[nodiscard]] std::uint64_t free_bytes() const;

  kernel::Kernel& kernel_;
  PressureSpec spec_;
  kernel::Process& process_;
  std::function<void()> ready_;
  bool stopped_ = false;
};

}  // namespace faultline::scenario
