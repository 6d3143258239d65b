// SPDX-License-Identifier: Apache-2.0
//
// The probe's libc: glibc 2.36's malloc and threads in the modelled process, in the state
// in which a static program reaches main().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernel_model/kernel.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::real_kernels {

class ProbeHeap {
 public:
  // `stack_touched_bytes`: how far from the top a thread of the probe touches its stack.
  ProbeHeap(kernel::Process& process, Task& main, std::uint64_t stack_touched_bytes);
  ~ProbeHeap();

  // Of the main thread.
  kernel::VirtAddr malloc(std::uint64_t bytes);
  void free(kernel::VirtAddr at);

  // What a thread of the probe does; `touch` writes a byte each `stride` bytes.
  class Thread {
   public:
    virtual ~Thread() = default;
    virtual kernel::VirtAddr malloc(std::uint64_t bytes) = 0;
    virtual void touch(kernel::VirtAddr at, std::uint64_t bytes, std::uint64_t stride) = 0;
  };
  // Runs `count` threads; when all have done `body`, `at_barrier` is called once, and they
  // end.
  void threads(unsigned count, const std::function<void(Thread&)>& body,
               const std::function<void()>& at_barrier);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::real_kernels
