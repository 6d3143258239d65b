// SPDX-License-Identifier: Apache-2.0
//
// model_trace RELEASE TUNABLES FILE: plays a program of allocator operations in the model
// and prints the system calls that the allocator made, one a line: name and arguments in
// hexadecimal, then the result or the errno.
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/platform/native.h"
#include "allocator/ptmalloc/tunables.h"
#include "scenarios/workloads/ops.h"
#include "tests/unit/allocator/model_bench.h"

namespace {

using namespace faultline;
using alloc::SysCall;
using alloc::SysName;

void print(const SysCall& c) {
  const auto u = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  switch (c.name) {
    case SysName::kMmap:
      std::printf("mmap %llx %llx %llx %x", u(c.addr), u(c.size), u(c.extra), c.flags);
      break;
    case SysName::kMunmap:
      std::printf("munmap %llx %llx", u(c.addr), u(c.size));
      break;
    case SysName::kMprotect:
      std::printf("mprotect %llx %llx %llx", u(c.addr), u(c.size), u(c.extra));
      break;
    case SysName::kMadvise:
      std::printf("madvise %llx %llx %llu", u(c.addr), u(c.size), u(c.extra));
      break;
    case SysName::kVrange:
      std::printf("vrange %llx %llx %llu", u(c.addr), u(c.size), u(c.extra));
      break;
    case SysName::kMremap:
      std::printf("mremap %llx %llx %llx %x", u(c.addr), u(c.size), u(c.extra), c.flags);
      break;
    case SysName::kSbrk:
      std::printf("sbrk %llx", u(c.size));
      break;
    case SysName::kGetrandom:
      return;
  }
  if (c.error != 0)
    std::printf(" = -%d\n", c.error);
  else
    std::printf(" = %llx\n", u(c.result));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const alloc::ReleaseProfile* release = alloc::find_release(argv[1]);
  if (release == nullptr) return 2;
  const alloc::TunablesResult tunables = alloc::parse_tunables(argv[2], *release);
  if (!tunables.problem.empty()) return 2;
  std::stringstream text;
  text << std::ifstream(argv[3]).rdbuf();
  const std::string program_text = text.str();
  const auto program = std::make_unique<workloads::OpsProgram>();
  if (workloads::read_ops(program_text, *program).what != nullptr) return 2;

  alloc::SysLog log(1 << 20);
  // THP as on this machine, where the other worlds are traced.
  const alloc::NativeProcess host;
  const char mode = alloc::Native(const_cast<alloc::NativeProcess&>(host)).facts().thp_mode;
  alloc::modelled::MachineChoice choice;
  choice.thp = mode == 'a'   ? kernel::ThpEnabled::kAlways
               : mode == 'm' ? kernel::ThpEnabled::kMadvise
                             : kernel::ThpEnabled::kNever;
  alloc::modelled::Machine machine(choice);
  machine.run([&](alloc::Model& model) {
    using P = alloc::Recording<alloc::Model>;
    P platform(model, log);
    alloc::Ptmalloc<P> heap(platform, *release, tunables.settings);
    std::vector<workloads::OpsBlock> pool(1 << 16);
    workloads::OpsThread<P, alloc::Ptmalloc<P>> main_thread(platform, heap, *program, pool);
    main_thread.run(0, program->size);
  });
  for (std::size_t i = 0; i < log.size(); ++i) print(log[i]);
  return log.overflowed() ? 3 : 0;
}
