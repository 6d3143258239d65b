// SPDX-License-Identifier: Apache-2.0
//
// The model's side: a modelled x86-64 machine with the preset of the live kernel, one task
// a process; each operation is one short run of the engine.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/system_views.h"
#include "kernel_model/syscall.h"
#include "tests/oracle/outcome.h"
#include "tests/oracle/smaps.h"

namespace faultline::oracle {
namespace {

using namespace faultline::kernel;

MachineShape one_cpu() {
  return {.node_of_cpu = {0}, .node_distance = {{10}}};
}

arch::Profile host_profile() {
  arch::Profile p = arch::load_profile("x86-4k");
  return p;
}

KernelConfig host_config(const HostSettings& host) {
  KernelConfig config = load_preset(host.preset);
  config.thp_enabled = host.thp_enabled == "always"    ? ThpEnabled::kAlways
                       : host.thp_enabled == "madvise" ? ThpEnabled::kMadvise
                                                       : ThpEnabled::kNever;
  config.use_zero_page = host.use_zero_page;
  return config;
}

class Model final : public Side {
 public:
  explicit Model(const HostSettings& host)
      : engine_(one_cpu(), {}), kernel_(engine_, host_profile(), host_config(host)) {
    if (host.nr_hugepages > 0)
      kernel_.hugetlb().set_max_huge_pages(*kernel_.hugetlb().default_pool(),
                                           host.nr_hugepages);
    engine_.check_lock_order();
    kernel_.watch_contents();
    procs_[0] = &kernel_.create_process("p0");
  }

  OpOutcome run(const Op& op) override {
    OpOutcome out;
    Process& process = *procs_[op.proc];
    engine_.spawn(
        "op",
        [&](Task& task) {
          const std::uint64_t before = process.minflt;
          out = call(task, process, op);
          out.minflt = op.call == Call::kFork || op.call == Call::kExit
                           ? 0
                           : process.minflt - before;
        },
        engine_.now());
    engine_.run();
    check_invariants(kernel_);
    return out;
  }

  Counters counters() override { return parse_vmstat(vmstat_text(kernel_)); }

  ProcState look(unsigned proc) override {
    ProcState state;
    kernel_.mm_shared().lru.lru_add_drain(0);  // as the live side does before it looks
    Mm& mm = procs_[proc]->mm();
    const Range window{VirtAddr{kWindowStart}, VirtAddr{kWindowStart + kWindowBytes}};
    for (Vma* vma = mm.find_vma(window.start); vma != nullptr && vma->start < window.end;
         vma = mm.find_vma(vma->end))
      add_pages(mm, *vma, state);
    state.vmas = parse_smaps(smaps_text(mm));
    return state;
  }

 private:
  static OpOutcome status(SysStatus e) { return {.result = -static_cast<int>(e)}; }
  static OpOutcome address(const SysResult<VirtAddr>& r) {
    if (!r.ok()) return status(r.error());
    return {.result = static_cast<std::int64_t>(r.value().v - kWindowStart)};
  }

  OpOutcome call(Task& task, Process& process, const Op& op) {
    const VirtAddr at{kWindowStart + op.off};
    switch (op.call) {
      case Call::kMmap:
        return address(
            sys_mmap(task, process, at, op.len, op.prot, op.flags | kMapAnonymous));
      case Call::kMunmap:
        return status(sys_munmap(task, process, at, op.len));
      case Call::kMprotect:
        return status(sys_mprotect(task, process, at, op.len, op.prot));
      case Call::kMadvise:
        return status(
            sys_madvise(task, process, at, op.len, static_cast<Madvise>(op.advice)));
      case Call::kMremap:
        return address(sys_mremap(task, process, at, op.len, op.new_len, op.flags,
                                  VirtAddr{kWindowStart + op.new_off}));
      case Call::kMlock:
        return status(sys_mlock(task, process, at, op.len));
      case Call::kMunlock:
        return status(sys_munlock(task, process, at, op.len));
      case Call::kMlockOnfault:
        return status(sys_mlock(task, process, at, op.len, MlockMode::kOnfault));
      case Call::kName:
        return status(sys_prctl_set_vma_anon_name(task, process, at, op.len,
                                                  op.value ? kAnonNames[op.value] : ""));
      case Call::kThpDisable:
        return status(sys_prctl_set_thp_disable(task, process, op.value != 0));
      case Call::kFork:
        return fork(task, process, op);
      case Call::kExit:
        sys_exit_group(task, process);
        return {};
      case Call::kMincore:
        return mincore(task, process, op);
      case Call::kRead:
      case Call::kWrite:
        return touch(task, process, op);
      default:
        return status(Errno::kENOSYS);
    }
  }

  OpOutcome fork(Task& task, Process& process, const Op& op) {
    const SysResult<Process*> child = sys_fork(task, process);
    if (!child.ok()) return status(child.error());
    procs_[op.value] = child.value();
    return {};
  }

  static OpOutcome mincore(Task& task, Process& process, const Op& op) {
    std::vector<std::uint8_t> present;
    const SysStatus error =
        sys_mincore(task, process, VirtAddr{kWindowStart + op.off}, op.len, present);
    if (error != Errno::kOk) return status(error);
    OpOutcome out;
    for (std::size_t i = 0; i < present.size(); ++i)
      out.result += present[i] != 0 ? static_cast<std::int64_t>(i + 1) : 0;
    return out;
  }

  OpOutcome touch(Task& task, Process& process, const Op& op) {
    const VirtAddr page{(kWindowStart + op.off) & ~std::uint64_t{4095}};
    const Signal s = user_access(task, process, page,
                                 op.call == Call::kWrite ? Access::kWrite : Access::kRead);
    OpOutcome out;
    if (s != Signal::kNone)
      out.signal = s == Signal::kBus ? 7 : 11;
    else if (op.call == Call::kWrite)
      kernel_.contents()->wrote(frame(process.mm().pages().look(page), page), op.value);
    return out;
  }

  // Of a huge page the frame under `at`.
  static Pfn frame(const PageView& page, VirtAddr at) {
    if (page.kind != PageView::kHuge && page.kind != PageView::kHugetlb) return page.pfn;
    return Pfn{page.pfn.v + static_cast<std::uint32_t>(at.v / 4096 % 512)};
  }

  // The pages of a VMA, and the first byte of those that can be read.
  void add_pages(Mm& mm, const Vma& vma, ProcState& state) {
    for (VirtAddr at = vma.start; at < vma.end; at = at + 4096) {
      const PageView page = mm.pages().look(at);
      const bool zero = page.kind == PageView::kZero || page.kind == PageView::kHugeZero;
      const bool present = zero || page.kind == PageView::kBase ||
                           page.kind == PageView::kHuge || page.kind == PageView::kHugetlb;
      state.pages += present ? 'p' : '.';
      if (present && (vma.vm_flags & VM_READ) != 0)
        state.bytes.push_back(zero ? std::uint8_t{0}
                                   : kernel_.contents()->byte(frame(page, at)));
    }
  }

  Engine engine_;
  Kernel kernel_;
  std::array<Process*, kMaxProcs> procs_{};
};

}  // namespace

std::unique_ptr<Side> model_side(const HostSettings& host) {
  return std::make_unique<Model>(host);
}

}  // namespace faultline::oracle
