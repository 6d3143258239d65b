// SPDX-License-Identifier: Apache-2.0
//
// A machine's kernel: physical memory, configuration, counters, processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "kernel_model/types.h"
#include "sim/bandwidth.h"
#include "sim/engine.h"

namespace faultline::kernel {

class Kernel;
class Mm;          // kernel_model/mm/mm.h
class PhysMem;     // kernel_model/phys/phys_mem.h
class MmShared;    // kernel_model/mm/mm_shared.h: what all address spaces share (huge zero page …)
struct Vmstat;     // kernel_model/proc/vmstat.h: one uint64 a counter, the kernel's names

// A thread group.  Per-process counters as getrusage and /proc/PID/status give them.
class Process {
 public:
  Process(Kernel& kernel, std::string name);
  ~Process();
  [[nodiscard]] Kernel& kernel() const { return kernel_; }
  [[nodiscard]] Mm& mm() const { return *mm_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  std::uint64_t minflt = 0, majflt = 0;

  // The host's copy of the process's bytes must follow what the kernel discards or moves; the
  // platform sets these.  Ranges are page aligned; called with the memory already gone.
  std::function<void(Range)> on_discard;
  std::function<void(VirtAddr from, VirtAddr to, std::uint64_t bytes)> on_move;
  // Rises whenever a mapping that allowed an access stops allowing it (unmap, protect, discard):
  // caches of "this page may be accessed" compare it.
  std::uint64_t access_generation = 0;

 private:
  Kernel& kernel_;
  std::string name_;
  std::unique_ptr<Mm> mm_;
};

class Kernel {
 public:
  // Everything is copied; `engine` must outlive the kernel.
  Kernel(Engine& engine, const arch::Profile& profile, const KernelConfig& config);
  ~Kernel();

  // A process with the profile's layout (its program's VMAs, brk, mmap_base), nothing faulted in
  // except what a freshly exec'ed static program has touched.
  Process& create_process(std::string name);

  [[nodiscard]] Engine& engine() const;
  [[nodiscard]] const arch::Profile& profile() const;
  [[nodiscard]] const KernelConfig& config() const;
  [[nodiscard]] PhysMem& phys();
  [[nodiscard]] SharedBandwidth& bandwidth(int node);   // costs.node_bandwidth each
  [[nodiscard]] MmShared& mm_shared();
  [[nodiscard]] Vmstat& vmstat();
  [[nodiscard]] const std::vector<std::unique_ptr<Process>>& processes() const;
};

}  // namespace faultline::kernel
