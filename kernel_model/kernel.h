// SPDX-License-Identifier: Apache-2.0
//
// A machine's kernel: physical memory, configuration, counters, processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "kernel_model/types.h"
#include "sim/bandwidth.h"
#include "sim/cost_centre.h"
#include "sim/engine.h"
#include "sim/locks.h"

namespace faultline::kernel {

class Kernel;
class Mm;            // kernel_model/mm/mm.h
class PhysMem;       // kernel_model/phys/phys_mem.h
class PageContents;  // kernel_model/phys/page_contents.h
class HugetlbPools;  // kernel_model/mm/hugetlb.h
class Tlbs;          // kernel_model/tlb/tlb.h
class DataCaches;    // kernel_model/mm/data_caches.h
class ShadowMmu;     // kernel_model/mm/shadow_mmu.h
class MmShared;  // kernel_model/mm/mm_shared.h: what all address spaces share (huge zero
                 // page …)
struct Vmstat;   // kernel_model/proc/vmstat.h: one uint64 a counter, the kernel's names

// Remembers accesses that went through.
class AccessCache {
 public:
  virtual void forget() = 0;

 protected:
  ~AccessCache() = default;
};

// Those of one process.  They forget whenever a mapping that allowed an access stops
// allowing it (unmap, protect, discard), or an access that was free in the TLB may be so no
// longer.
class AccessCaches {
 public:
  void forget() {
    for (AccessCache* const cache : caches_) cache->forget();
  }
  void add(AccessCache& cache) { caches_.push_back(&cache); }
  void remove(AccessCache& cache) { std::erase(caches_, &cache); }

 private:
  std::vector<AccessCache*> caches_;
};

// A thread group.  Per-process counters as getrusage and /proc/PID/status give them.
class Process {
 public:
  Process(Kernel& kernel, std::string name, std::uint32_t asid);
  ~Process();
  [[nodiscard]] Kernel& kernel() const { return kernel_; }
  [[nodiscard]] Mm& mm() const { return *mm_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Its number from 1 in Kernel::processes(), which tags its entries in TLBs.
  [[nodiscard]] std::uint32_t asid() const { return asid_; }

  const Process* real_parent = nullptr;  // null: not forked
  std::uint64_t minflt = 0, majflt = 0;
  bool oom_killed = false;  // its threads end at their next fault

  // The host's copy of the process's bytes must follow what the kernel discards or moves;
  // the platform sets these.  Ranges are page aligned.  A range is called when its pages
  // are about to go and no access of a later time can have reached them yet.
  std::function<void(Range)> on_discard;
  std::function<void(VirtAddr from, VirtAddr to, std::uint64_t bytes)> on_move;
  // The child has this process's pages, and nobody can have written to any since.
  std::function<void(Process& child)> on_fork;
  AccessCaches access_caches;

  // Contents of `range` are gone.
  void discarded(Range range) {
    access_caches.forget();
    if (on_discard) on_discard(range);
  }

  // exec: another address space takes the old one's place; answers the old one.
  std::unique_ptr<Mm> exec_mmap(std::unique_ptr<Mm> mm);

 private:
  Kernel& kernel_;
  std::string name_;
  std::uint32_t asid_;
  std::unique_ptr<Mm> mm_;
};

// The cost centres whose names the architecture decides.
struct ArchCentres {
  Centre user_fault_entry;         // el0_da, asm_exc_page_fault …
  std::vector<Centre> fault_path;  // below it, outermost first
  Centre syscall_entry;            // el0_svc, do_syscall_64 …
  Centre clear_page;
};

class Kernel {
 public:
  // Everything is copied; `engine` must outlive the kernel.
  Kernel(Engine& engine, const arch::Profile& profile, const KernelConfig& config);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // A process with the profile's layout (its program's VMAs, brk, mmap_base), nothing
  // faulted in except what a freshly exec'ed static program has touched.
  Process& create_process(std::string name);
  // A process without any mapping, for fork.
  Process& add_process(std::string name);

  [[nodiscard]] Engine& engine() const { return engine_; }
  [[nodiscard]] const arch::Profile& profile() const { return profile_; }
  [[nodiscard]] const KernelConfig& config() const { return config_; }
  [[nodiscard]] unsigned version() const { return version_; }  // config().version()
  [[nodiscard]] PhysMem& phys() { return *phys_; }
  [[nodiscard]] SharedBandwidth& bandwidth(int node);  // costs.node_bandwidth each
  [[nodiscard]] HugetlbPools& hugetlb() { return *hugetlb_; }
  [[nodiscard]] MmShared& mm_shared() { return *mm_shared_; }
  [[nodiscard]] Tlbs* tlbs() { return tlbs_.get(); }  // null: TLBs aren't modelled
  // Null: every bulk access takes the same time.
  [[nodiscard]] DataCaches* data_caches() { return data_caches_.get(); }
  // Null unless this is a guest whose host keeps shadow page tables.
  [[nodiscard]] ShadowMmu* shadow_mmu() { return shadow_mmu_.get(); }
  [[nodiscard]] Vmstat& vmstat() { return *vmstat_; }
  [[nodiscard]] const ArchCentres& centres() const { return centres_; }
  [[nodiscard]] LockCosts lock_costs() const;
  [[nodiscard]] const std::vector<std::unique_ptr<Process>>& processes() const {
    return processes_;
  }

  // Contents of frames, for checks; null unless watched from the start.
  void watch_contents();
  [[nodiscard]] PageContents* contents() { return contents_.get(); }

  // Pages promised to mappings that may not be refused later (vm_committed_as).
  std::uint64_t committed_pages = 0;

 private:
  Engine& engine_;
  const arch::Profile profile_;
  const KernelConfig config_;
  const unsigned version_;
  ArchCentres centres_;
  std::unique_ptr<PhysMem> phys_;
  std::vector<std::unique_ptr<SharedBandwidth>> bandwidth_;
  std::unique_ptr<PageContents> contents_;
  std::unique_ptr<Vmstat> vmstat_;
  std::unique_ptr<MmShared> mm_shared_;
  std::unique_ptr<HugetlbPools> hugetlb_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<Tlbs> tlbs_;
  std::unique_ptr<DataCaches> data_caches_;
  std::unique_ptr<ShadowMmu> shadow_mmu_;
};

}  // namespace faultline::kernel
