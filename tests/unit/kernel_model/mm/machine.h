// SPDX-License-Identifier: Apache-2.0
//
// A machine with one process, for tests that make system calls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/syscall.h"
#include "sim/engine.h"

namespace faultline::kernel::testing {

inline constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
inline constexpr unsigned kRw = kProtRead | kProtWrite;
inline constexpr unsigned kAnon = kMapPrivate | kMapAnonymous;

class Machine {
 public:
  explicit Machine(std::string_view profile = "x86-4k", std::string_view preset = "6.1",
                   const std::function<void(KernelConfig&)>& adjust = {})
      : profile_(arch::load_profile(profile)),
        engine_({profile_.node_of_cpu, profile_.node_distance}, {}) {
    KernelConfig config = load_preset(preset);
    config.thp_enabled = ThpEnabled::kNever;
    if (adjust) adjust(config);
    kernel_ = std::make_unique<Kernel>(engine_, profile_, config);
    process_ = &kernel_->create_process("init");
  }

  // Runs the bodies as threads of the process, started together in their order.
  template <typename... Bodies>
  void run(Bodies... bodies) {
    (engine_.spawn("thread", bodies), ...);
    engine_.run();
    check_invariants(*kernel_);
  }

  Kernel& kernel() { return *kernel_; }
  Engine& engine() { return engine_; }
  Process& process() { return *process_; }
  Mm& mm() { return process_->mm(); }
  [[nodiscard]] std::uint64_t page() const { return profile_.geometry.page_size(); }
  [[nodiscard]] const arch::Profile& profile() const { return profile_; }

  // Mappings between program and vdso, as "start-end flags" with start and end in pages
  // from `base`.
  std::vector<std::string> maps(VirtAddr base, std::uint64_t pages) {
    std::vector<std::string> lines;
    const VirtAddr top = base + pages * page();
    for (const Vma& vma : mm().vmas) {
      if (vma.end <= base || top <= vma.start) continue;
      lines.push_back(
          std::to_string(static_cast<std::int64_t>(vma.start.v - base.v) / step()) + "-" +
          std::to_string(static_cast<std::int64_t>(vma.end.v - base.v) / step()) + " " +
          perms(vma));
    }
    return lines;
  }

 private:
  [[nodiscard]] std::int64_t step() const { return static_cast<std::int64_t>(page()); }
  static std::string perms(const Vma& vma) {
    std::string text;
    text += (vma.vm_flags & VM_READ) != 0 ? 'r' : '-';
    text += (vma.vm_flags & VM_WRITE) != 0 ? 'w' : '-';
    text += (vma.vm_flags & VM_EXEC) != 0 ? 'x' : '-';
    if ((vma.vm_flags & VM_HUGEPAGE) != 0) text += " hg";
    if ((vma.vm_flags & VM_NOHUGEPAGE) != 0) text += " nh";
    if ((vma.vm_flags & VM_LOCKED) != 0) text += " lo";
    if ((vma.vm_flags & VM_DONTCOPY) != 0) text += " dc";
    return text;
  }

  arch::Profile profile_;
  Engine engine_;
  std::unique_ptr<Kernel> kernel_;
  Process* process_ = nullptr;
};

// The calls of one thread, without the arguments that never change.
struct Thread {
  Thread(Task& t, Machine& m) : task(t), process(m.process()) {}
  SysResult<VirtAddr> mmap_at(VirtAddr hint, std::uint64_t length, unsigned prot,
                              unsigned flags) {
    return sys_mmap(task, process, hint, length, prot, flags);
  }
  VirtAddr mmap(std::uint64_t length, unsigned prot = kRw, unsigned flags = kAnon) {
    const auto result = mmap_at({}, length, prot, flags);
    EXPECT_TRUE(result.ok()) << errno_name(result.error());
    return result.value();
  }
  SysStatus munmap(VirtAddr at, std::uint64_t n) {
    return sys_munmap(task, process, at, n);
  }
  SysStatus mprotect(VirtAddr at, std::uint64_t n, unsigned prot) {
    return sys_mprotect(task, process, at, n, prot);
  }
  SysStatus madvise(VirtAddr at, std::uint64_t n, Madvise advice) {
    return sys_madvise(task, process, at, n, advice);
  }
  SysResult<VirtAddr> mremap(VirtAddr at, std::uint64_t old_length,
                             std::uint64_t new_length, unsigned flags, VirtAddr to = {}) {
    return sys_mremap(task, process, at, old_length, new_length, flags, to);
  }
  VirtAddr brk(VirtAddr to) { return sys_brk(task, process, to); }
  Signal write(VirtAddr at) { return user_access(task, process, at, Access::kWrite); }
  Signal read(VirtAddr at) { return user_access(task, process, at, Access::kRead); }

  Task& task;
  Process& process;
};

}  // namespace faultline::kernel::testing
