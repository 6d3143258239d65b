// SPDX-License-Identifier: Apache-2.0
//
// Memory pressure from outside: a second process that keeps a machine short of memory while
// the workload runs.
//
// It starts with the workload and dirties memory as fast as it can until no more is free
// than asked for.  From then on it writes at its rate, giving back its oldest pages for
// each new one: the load of a busy neighbour on CPUs, memory bandwidth and the page
// allocator.  Besides it grows, at a rate of its own, until the target is reached again,
// which wakes kswapd; then it waits for kswapd to free what the high watermark asks for, at
// the expense of whoever has something to lose.  If kswapd finds nothing for a tenth of a
// second, the hog shrinks itself to that mark; and whenever less than nine tenths of the
// target are left, it gives back twice what it writes.  So free memory goes up and down
// between the two marks, and nothing is killed.
//
// Model: no workload's own pressure is known from the mailing lists, so this is the hog's
// whole definition, not a copy of somebody's.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel_model/kernel.h"
#include "scenarios/run/scenario.h"
#include "sim/task.h"

namespace faultline::scenario {

// Tasks of the hog are named so; their time is in no sum of the workload's.
inline constexpr std::string_view kHogName = "hog";

class Hog {
 public:
  static constexpr std::uint64_t kStep = std::uint64_t{256} << 10;  // bytes at a time

  // `kernel` must outlive the object.
  Hog(kernel::Kernel& kernel, const PressureSpec& spec);

  // Starts its threads.
  void start();
  // They end after their present step.
  void stop() { stopped_ = true; }

 private:
  enum class Phase : std::uint8_t { kFilling, kGrowing, kWaiting, kShrinking };
  // One thread's part of the address space: bytes [tail, head) of the ring are its own.
  struct Ring {
    kernel::VirtAddr start;
    std::uint64_t bytes = 0, most = 0, head = 0, tail = 0;
    [[nodiscard]] bool full() const { return head - tail + kStep > most; }
    Phase phase = Phase::kFilling;
    Time since;  // of the phase
    Time grows;  // when it may grow next
  };
  void run(Task& task);
  void map(Task& task, Ring& ring);
  bool step(Task& task, Ring& ring);
  void next_phase(Task& task, Ring& ring);
  void give_back(Task& task, Ring& ring);
  bool write(Task& task, Ring& ring);
  [[nodiscard]] std::uint64_t free_bytes() const;

  kernel::Kernel& kernel_;
  PressureSpec spec_;
  std::uint64_t high_;  // bytes: where kswapd is content
  kernel::Process& process_;
  bool stopped_ = false;
};

}  // namespace faultline::scenario
