// SPDX-License-Identifier: Apache-2.0
//
// A small machine for tests of the kernel model, with pictures of its page tables.
//
// Its huge page has 8 base pages, so that a mapping can be drawn in a line:
//   H  page of a PMD-mapped huge page    p  base page, or piece of a split huge page
//   Z  huge zero page                    z  zero page
//   f  page of a file                    .  nothing
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "kernel_model/syscall.h"
#include "sim/engine.h"

namespace faultline::kernel::testing {

// 4 KiB pages, 32 KiB huge pages, three levels, one node; every cost is a round number.
arch::Profile toy_profile(unsigned cpus = 4);
KernelConfig toy_config(const std::string& preset = "6.1");

class ToyMachine {
 public:
  explicit ToyMachine(const arch::Profile& profile = toy_profile(),
                      const KernelConfig& config = toy_config());

  // Runs `body` as a task of the process to its end, and all tasks added before.
  void run(std::function<void(Task&)> body);
  // Adds a task; run() starts it.
  void add(std::function<void(Task&)> body, Duration start = {});
  void run_all();  // then checks the kernel's invariants

  // From within a task; failures are the test's.
  VirtAddr mmap(Task& task, std::uint64_t pages, VirtAddr at = {});
  Signal write(Task& task, VirtAddr at) {
    return user_access(task, process(), at, Access::kWrite);
  }
  Signal read(Task& task, VirtAddr at) {
    return user_access(task, process(), at, Access::kRead);
  }

  [[nodiscard]] std::string draw(VirtAddr at, std::uint64_t pages);
  [[nodiscard]] Process& process() { return *process_; }
  [[nodiscard]] Mm& mm() { return process_->mm(); }
  [[nodiscard]] PageTables& pages() { return mm().pages(); }
  [[nodiscard]] Vmstat& vmstat() { return kernel.vmstat(); }
  [[nodiscard]] std::uint64_t page() const { return kernel.profile().geometry.page_size(); }
  [[nodiscard]] std::uint64_t huge() const { return kernel.profile().geometry.pmd_size(); }

  Engine engine;
  Kernel kernel;

 private:
  Process* process_;
};

}  // namespace faultline::kernel::testing
