// SPDX-License-Identifier: Apache-2.0
//
// Host speed of the kernel model: faults, system calls, walks over large ranges.
//
// Goals on one core: 10 M base-page faults and 3 M mmap + touch + munmap cycles a second
// (10.7 M and 3.05 M on an EPYC).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/data_caches.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/syscall.h"
#include "sim/engine.h"

namespace {

using namespace faultline;
using namespace faultline::kernel;

constexpr unsigned kRw = kProtRead | kProtWrite;
constexpr unsigned kAnon = kMapPrivate | kMapAnonymous;

// Runs `loop` as the one task of a process on a fresh machine.
template <typename Loop>
void run(const arch::Profile& profile, ThpEnabled thp, Loop loop) {
  Engine engine({profile.node_of_cpu, profile.node_distance}, {});
  KernelConfig config = load_preset("6.1");
  config.thp_enabled = thp;
  Kernel kernel(engine, profile, config);
  Process& process = kernel.create_process("bench");
  engine.spawn("bench", [&](Task& task) { loop(task, process); });
  engine.run();
}

template <typename Loop>
void run(const char* profile_name, ThpEnabled thp, Loop loop) {
  run(arch::load_profile(profile_name), thp, loop);
}

void BasePageFaults(benchmark::State& state) {
  constexpr std::uint64_t kBytes = 64 << 20;
  std::int64_t faults = 0;
  run("x86-4k", ThpEnabled::kNever, [&](Task& task, Process& process) {
    const VirtAddr at = sys_mmap(task, process, {}, kBytes, kRw, kAnon).value();
    for (auto _ : state) {
      user_touch(task, process, at, kBytes, 4096, Access::kWrite);
      state.PauseTiming();
      faults += kBytes / 4096;
      sys_madvise(task, process, at, kBytes, Madvise::kDontneed);
      state.ResumeTiming();
    }
  });
  state.SetItemsProcessed(faults);
}
BENCHMARK(BasePageFaults);

void MmapTouchMunmap(benchmark::State& state) {
  run("x86-4k", ThpEnabled::kNever, [&](Task& task, Process& process) {
    for (auto _ : state) {
      const VirtAddr at = sys_mmap(task, process, {}, 65536, kRw, kAnon).value();
      user_access(task, process, at, Access::kWrite);
      sys_munmap(task, process, at, 65536);
    }
  });
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(MmapTouchMunmap);

// Half a megabyte that a last-level cache holds, as ebizzy copies it; one item is a page
// that is looked up.
void CopyOfWhatACacheHolds(benchmark::State& state) {
  constexpr std::uint64_t kBytes = 512 << 10;
  arch::Profile profile = arch::load_profile("x86-4k");
  profile.llc = {.bytes = 12 << 20, .ways = 16, .slices = 6};
  profile.llc.placement = arch::Llc::Placement::kRandom;
  profile.costs.cached_copy_rate = profile.costs.memory_rate = 10'000'000'000;
  run(profile, ThpEnabled::kNever, [&](Task& task, Process& process) {
    const VirtAddr at = sys_mmap(task, process, {}, 2 * kBytes, kRw, kAnon).value();
    user_touch(task, process, at, 2 * kBytes, 4096, Access::kWrite);
    DataCaches& caches = *process.kernel().data_caches();
    for (auto _ : state) caches.copy(task, process, at + kBytes, at, kBytes);
  });
  state.SetItemsProcessed(state.iterations() * (2 * kBytes / 4096));
}
BENCHMARK(CopyOfWhatACacheHolds);

// The same half megabyte faulted in and given back; one item is a page.
void FaultsAndDontneed(benchmark::State& state) {
  constexpr std::uint64_t kBytes = 512 << 10;
  run("x86-4k", ThpEnabled::kNever, [&](Task& task, Process& process) {
    const VirtAddr at = sys_mmap(task, process, {}, kBytes, kRw, kAnon).value();
    for (auto _ : state) {
      user_touch(task, process, at, kBytes, 4096, Access::kWrite);
      sys_madvise(task, process, at, kBytes, Madvise::kDontneed);
    }
  });
  state.SetItemsProcessed(state.iterations() * (kBytes / 4096));
}
BENCHMARK(FaultsAndDontneed);

void HugePageFaultAndZap(benchmark::State& state) {
  run("arm64-64k", ThpEnabled::kAlways, [&](Task& task, Process& process) {
    const VirtAddr at = sys_mmap(task, process, {}, 1 << 30, kRw, kAnon).value();
    const VirtAddr huge{(at.v + (512 << 20) - 1) & ~std::uint64_t{(512 << 20) - 1}};
    for (auto _ : state) {
      user_access(task, process, huge, Access::kWrite);
      sys_madvise(task, process, huge, 512 << 20, Madvise::kDontneed);
    }
  });
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(HugePageFaultAndZap);

void HugePageSplit(benchmark::State& state) {
  run("arm64-64k", ThpEnabled::kAlways, [&](Task& task, Process& process) {
    const VirtAddr at = sys_mmap(task, process, {}, 1 << 30, kRw, kAnon).value();
    const VirtAddr huge{(at.v + (512 << 20) - 1) & ~std::uint64_t{(512 << 20) - 1}};
    for (auto _ : state) {
      user_access(task, process, huge, Access::kWrite);
      sys_madvise(task, process, huge, 65536, Madvise::kDontneed);
      sys_munmap(task, process, at, 1 << 30);
      if (sys_mmap(task, process, at, 1 << 30, kRw, kAnon | kMapFixed).value() != at)
        std::abort();
    }
  });
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(HugePageSplit);

void ZapOfAnEmpty128GiB(benchmark::State& state) {
  run("x86-4k", ThpEnabled::kNever, [&](Task& task, Process& process) {
    constexpr std::uint64_t kBytes = std::uint64_t{128} << 30;
    const VirtAddr at =
        sys_mmap(task, process, {}, kBytes, kRw, kAnon | kMapNoreserve).value();
    for (auto _ : state) sys_madvise(task, process, at, kBytes, Madvise::kDontneed);
  });
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ZapOfAnEmpty128GiB);

// 256 GB, one page in each GB: full scans of khugepaged, which looks at each of 131,072
// ranges and finds a page in 256 of them.
void KhugepagedOver256GB(benchmark::State& state) {
  const arch::Profile profile = arch::load_profile("x86-4k");
  Engine engine({profile.node_of_cpu, profile.node_distance}, {});
  KernelConfig config = load_preset("6.1");
  config.thp_enabled = ThpEnabled::kMadvise;
  config.khugepaged_scan_sleep = 10;
  config.khugepaged_max_ptes_none = 0;  // nothing to collapse: each scan finds the same
  config.khugepaged_pages_to_scan = std::uint64_t{1} << 30;
  Kernel kernel(engine, profile, config);
  Process& process = kernel.create_process("bench");
  engine.spawn("bench", [&](Task& task) {
    constexpr std::uint64_t kGB = std::uint64_t{1} << 30, kBytes = 256 * kGB;
    const VirtAddr at =
        sys_mmap(task, process, {}, kBytes, kRw, kAnon | kMapNoreserve).value();
    for (std::uint64_t i = 0; i < kBytes; i += kGB)
      user_access(task, process, at + i, Access::kWrite);
    sys_madvise(task, process, at, kBytes, Madvise::kHugepage);
    const Khugepaged& khugepaged = kernel.mm_shared().khugepaged;
    for (auto _ : state) {
      const std::uint64_t scans = khugepaged.full_scans();
      while (khugepaged.full_scans() == scans)
        sys_nanosleep(task, process, Duration::ms(1));
    }
  });
  engine.run();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(KhugepagedOver256GB);

}  // namespace
