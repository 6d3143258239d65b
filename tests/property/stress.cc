// SPDX-License-Identifier: Apache-2.0
#include "tests/property/stress.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/syscall.h"
#include "sim/engine.h"
#include "sim/rng.h"

namespace faultline::property {
namespace {

using namespace faultline::kernel;

MachineShape shape_of(const arch::Profile& profile) {
  return {.node_of_cpu = profile.node_of_cpu, .node_distance = profile.node_distance};
}

KernelConfig config_of(const StressPlan& plan) {
  KernelConfig config = load_preset(plan.preset);
  config.thp_enabled = plan.seed % 2 == 0 ? ThpEnabled::kAlways : ThpEnabled::kMadvise;
  return config;
}

class Stress {
 public:
  explicit Stress(const StressPlan& plan)
      : plan_(plan),
        profile_(arch::load_profile(plan.profile)),
        engine_(shape_of(profile_), {}),
        kernel_(engine_, profile_, config_of(plan)),
        page_(profile_.geometry.page_size()),
        piece_(profile_.geometry.has_thp ? profile_.geometry.pmd_size() : page_ * 512) {
    engine_.check_lock_order();
  }

  StressResult run() {
    Process& process = kernel_.create_process("stress");
    for (unsigned t = 0; t < plan_.threads; ++t)
      randoms_.emplace_back(plan_.seed, "stress", t);
    while (result_.calls < plan_.calls) {
      for (unsigned t = 0; t < plan_.threads; ++t) start_thread(process, randoms_[t]);
      engine_.run();
      check_invariants(kernel_);
    }
    for (const auto& p : kernel_.processes()) result_.faults += p->minflt;
    const LockStats& mmap_lock = engine_.locks().of("mmap_lock");
    result_.contended = mmap_lock.read.contended + mmap_lock.write.contended;
    result_.lock_pairs = engine_.lock_order()->pairs();
    note(static_cast<std::uint64_t>(engine_.now().since_start().count_ps()));
    return result_;
  }

 private:
  // One simulated thread: its own random numbers, its process's memory.
  struct Thread {
    Task& task;
    Process& process;
    Rng& rng;
    bool forks;
    std::uint64_t below(std::uint64_t n) { return rng.below(n); }
    bool one_in(std::uint64_t n) { return rng.below(n) == 0; }
  };

  // A thread's next few calls: then all have ended theirs, and everything must add up.
  void start_thread(Process& process, Rng& rng) {
    engine_.spawn(
        "stress",
        [this, &process, &rng](Task& task) {
          Thread thread{task, process, rng, true};
          for (unsigned i = 0; i < kCallsARound; ++i) call(thread);
        },
        engine_.now());
  }

  void note(std::uint64_t value) {
    result_.fingerprint = (result_.fingerprint ^ value) * 0x100000001b3ull;
  }
  void answered(Thread& t, Errno error) {
    t.task.sync();
    ++result_.calls;
    result_.failed += error != Errno::kOk;
    note(static_cast<std::uint64_t>(error));
    // Others stand in the middle of theirs: only what no call leaves for later must hold.
    for (const auto& process : kernel_.processes()) check_vmas_in_order(process->mm());
  }
  void accessed(Thread& t, Signal signal) {
    result_.signals += signal != Signal::kNone;
    answered(t, Errno::kOk);
  }

  // Ranges start in four pieces of the size of a huge page, mostly at page boundaries near
  // a few places.
  VirtAddr place(Thread& t) const {
    std::uint64_t at = t.below(4) * piece_;
    if (!t.one_in(3)) at += t.below(t.one_in(2) ? 8 : piece_ / page_) * page_;
    return VirtAddr{kBase + at};
  }
  std::uint64_t length(Thread& t) const {
    if (t.one_in(4)) return (1 + t.below(2)) * piece_;
    return (1 + t.below(t.one_in(4) ? piece_ / page_ : 8)) * page_;
  }
  static unsigned prot(Thread& t) {
    constexpr std::array<unsigned, 6> kProt = {3, 3, 3, 3, 1, 0};
    return kProt[t.below(kProt.size())];
  }

  void call(Thread& t) {
    const std::uint64_t dice = t.below(100);
    const VirtAddr at = place(t);
    const std::uint64_t bytes = length(t);
    if (dice < 16) {
      const unsigned more = t.one_in(8) ? kMapPopulate : 0U;
      answered(t, sys_mmap(t.task, t.process, at, t.one_in(2) ? 2 * piece_ : bytes, prot(t),
                           kMapPrivate | kMapAnonymous | kMapFixed | more)
                      .error());
    } else if (dice < 24) {
      answered(t, sys_munmap(t.task, t.process, at, bytes));
    } else if (dice < 32) {
      answered(t, sys_mprotect(t.task, t.process, at, bytes, prot(t)));
    } else if (dice < 48) {
      answered(t, sys_madvise(t.task, t.process, at, bytes, advice(t)));
    } else if (dice < 52) {
      const unsigned flags = t.one_in(2) ? kMremapMaymove | kMremapFixed : kMremapMaymove;
      answered(t, sys_mremap(t.task, t.process, at, bytes, t.one_in(2) ? bytes : length(t),
                             flags, place(t))
                      .error());
    } else if (dice < 54) {
      answered(t, t.one_in(2) ? sys_mlock(t.task, t.process, at, bytes)
                              : sys_munlock(t.task, t.process, at, bytes));
    } else if (dice < 55 && t.forks) {
      fork(t);
    } else {
      touch(t, at, bytes);
    }
  }

  static Madvise advice(Thread& t) {
    constexpr std::array kAdvice = {
        Madvise::kDontneed,     Madvise::kDontneed,      Madvise::kFree,
        Madvise::kFree,         Madvise::kHugepage,      Madvise::kHugepage,
        Madvise::kNohugepage,   Madvise::kCold,          Madvise::kPageout,
        Madvise::kPopulateRead, Madvise::kPopulateWrite, Madvise::kCollapse,
        Madvise::kGuardInstall, Madvise::kGuardRemove,   Madvise::kDontfork,
        Madvise::kDofork,       Madvise::kWipeonfork,    Madvise::kKeeponfork};
    return kAdvice[t.below(kAdvice.size())];
  }

  void touch(Thread& t, VirtAddr at, std::uint64_t bytes) {
    const Access access = t.one_in(3) ? Access::kRead : Access::kWrite;
    if (t.one_in(4))
      accessed(
          t, user_touch(t.task, t.process, at, std::min(bytes, 32 * page_), page_, access));
    else
      accessed(t, user_access(t.task, t.process, at, access));
  }

  // The child has one thread, which makes some calls and ends.
  void fork(Thread& t) {
    const SysResult<Process*> child = sys_fork(t.task, t.process);
    answered(t, child.error());
    if (!child.ok()) return;
    const std::uint64_t number = 500 + ++result_.forks;
    Process& process = *child.value();
    engine_.spawn("child", [this, &process, number](Task& task) {
      Rng rng(plan_.seed, "stress", number);
      Thread thread{task, process, rng, false};
      for (int i = 0; i < 12; ++i) call(thread);
      sys_exit_group(task, process);
      answered(thread, Errno::kOk);
    });
  }

  static constexpr unsigned kCallsARound = 2;
  static constexpr std::uint64_t kBase = std::uint64_t{1} << 34;

  const StressPlan plan_;
  const arch::Profile profile_;
  Engine engine_;
  Kernel kernel_;
  const std::uint64_t page_, piece_;
  std::vector<Rng> randoms_;  // by thread
  StressResult result_;
};

}  // namespace

StressResult run_stress(const StressPlan& plan) {
  return Stress(plan).run();
}

}  // namespace faultline::property
