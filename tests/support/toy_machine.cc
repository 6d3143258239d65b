// SPDX-License-Identifier: Apache-2.0
#include "tests/support/toy_machine.h"

#include "kernel_model/mm/invariants.h"
#include "kernel_model/presets/presets.h"
#include "sim/check.h"

namespace faultline::kernel::testing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

MachineShape shape_of(const arch::Profile& profile) {
  return {.node_of_cpu = profile.node_of_cpu,
          .node_distance = profile.node_distance,
          .threads_per_core = static_cast<int>(profile.smt),
          .smt_gain = static_cast<int>(profile.smt_gain)};
}

char letter(const PageView& view) {
  switch (view.kind) {
    case PageView::kNone:
      return '.';
    case PageView::kBase:
      return view.file ? 'f' : 'p';
    case PageView::kHuge:
      return 'H';
    case PageView::kZero:
      return 'z';
    case PageView::kHugeZero:
      return 'Z';
    case PageView::kSwap:
      return 's';
    case PageView::kGuard:
      return 'g';
    case PageView::kHugetlb:
      return 'T';
    case PageView::kPurged:
      return 'x';
  }
  return '?';
}

}  // namespace

arch::Profile toy_profile(unsigned cpus) {
  using namespace time_literals;
  arch::Profile p;
  p.name = "toy";
  p.isa = arch::Isa::kX86_64;
  p.geometry.page_shift = 12;
  p.geometry.pmd_shift = 15;
  p.geometry.va_bits = 27;
  p.geometry.max_order = 6;
  p.geometry.levels = {{"pgd", 6, 4096, 1}, {"pmd", 6, 4096, 1}, {"pte", 3, 4096, 1}};
  p.layout.task_size = std::uint64_t{1} << 27;
  p.layout.mmap_base = std::uint64_t{1} << 26;
  p.layout.brk_start = p.layout.brk = 4 * kMiB;
  p.layout.mmap_min_addr = 65536;
  p.cpus = cpus;
  p.node_of_cpu.assign(cpus, 0);
  p.nodes = {{.memory_bytes = 16 * kMiB, .free_bytes = 16 * kMiB}};
  p.node_distance = {{10}};
  p.names = {"asm_exc_page_fault",
             {"exc_page_fault", "do_user_addr_fault"},
             "do_syscall_64",
             "clear_page_erms"};
  p.cpu_hz = 1'000'000'000;
  p.split_pmd_ptlock_since = "3.13";
  p.per_vma_lock_since = "6.4";
  arch::Costs& c = p.costs;
#define X(name, text) c.name = 100_ns;
  FAULTLINE_TIME_COSTS(X)
#undef X
  c.pmd_walk = 1_ns;
  c.pte_set = c.pte_clear = 10_ns;
  c.clear_rate = c.copy_rate = 1'000'000'000;  // a base page: 4.096 us
  c.node_bandwidth = 100'000'000'000;
  return p;
}

KernelConfig toy_config(const std::string& preset) {
  KernelConfig config = load_preset(preset);
  config.min_free_kbytes = 64;
  return config;
}

ToyMachine::ToyMachine(const arch::Profile& profile, const KernelConfig& config)
    : engine(shape_of(profile), SchedCosts{}),
      kernel(engine, profile, config),
      process_(&kernel.create_process("test")) {
  engine.check_lock_order();
}

void ToyMachine::add(std::function<void(Task&)> body, Duration start) {
  engine.spawn("task", std::move(body), Time(start));
}

void ToyMachine::run_all() {
  engine.run();
  check_invariants(kernel);
}

void ToyMachine::run(std::function<void(Task&)> body) {
  engine.spawn("task", std::move(body), engine.now());
  run_all();
}

VirtAddr ToyMachine::mmap(Task& task, std::uint64_t pages, VirtAddr at) {
  unsigned flags = kMapPrivate | kMapAnonymous;
  if (at.v != 0) flags |= kMapFixed;
  const auto result =
      sys_mmap(task, process(), at, pages * page(), kProtRead | kProtWrite, flags);
  FAULTLINE_CHECK_EQ(result.error(), Errno::kOk);
  return result.value();
}

std::string ToyMachine::draw(VirtAddr at, std::uint64_t count) {
  std::string picture;
  for (std::uint64_t i = 0; i < count; ++i)
    picture += letter(pages().look(at + i * page()));
  return picture;
}

}  // namespace faultline::kernel::testing
