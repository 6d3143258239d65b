// SPDX-License-Identifier: Apache-2.0
//
// A machine with little memory, for tests of reclaim and compaction.
#pragma once

#include <functional>
#include <memory>

#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {

inline constexpr std::uint64_t k4K = 4096;

inline arch::Profile small_profile(std::uint64_t bytes) {
  arch::Profile p = arch::load_profile("x86-4k");
  p.nodes[0].memory_bytes = bytes;
  p.nodes[0].free_bytes = bytes - bytes / 32;
  p.nodes[0].free_blocks.clear();
  return p;
}

// 128 MiB of memory.
struct Small {
  explicit Small(const std::function<void(KernelConfig&)>& adjust = {})
      : profile(small_profile(128 * kMiB)),
        engine({profile.node_of_cpu, profile.node_distance}, {}) {
    KernelConfig config = load_preset("6.1");
    config.thp_enabled = ThpEnabled::kNever;
    if (adjust) adjust(config);
    kernel = std::make_unique<Kernel>(engine, profile, config);
    kernel->watch_contents();
    process = &kernel->create_process("init");
  }
  template <typename Body>
  void run(Body body) {
    engine.spawn("thread", body);
    engine.run();
    check_invariants(*kernel);
  }
  VirtAddr map(Task& task, std::uint64_t bytes) {
    return sys_mmap(task, *process, {}, bytes, kRw, kAnon).value();
  }
  Signal touch(Task& task, VirtAddr at, std::uint64_t bytes,
               Access access = Access::kWrite) {
    return user_touch(task, *process, at, bytes, k4K, access);
  }
  Vmstat& vmstat() { return kernel->vmstat(); }
  std::uint64_t free() { return kernel->phys().nr_free_pages(0); }

  arch::Profile profile;
  Engine engine;
  std::unique_ptr<Kernel> kernel;
  Process* process = nullptr;
};

}  // namespace faultline::kernel::testing
