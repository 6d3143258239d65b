// SPDX-License-Identifier: Apache-2.0
#include "allocator/ptmalloc/thp_hooks.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

constexpr ThpHook kHooks[] = {
    {Architecture::kAArch64, "aarch64", ThpSizeFrom::kPageSize, 0, 2 * kMiB},
    {Architecture::kLoongArch, "loongarch", ThpSizeFrom::kPageSize},  // not in the series
    {Architecture::kMips, "mips", ThpSizeFrom::kPageSize},
    {Architecture::kPowerPc, "powerpc", ThpSizeFrom::kKernel},
    {Architecture::kRiscV, "riscv", ThpSizeFrom::kPageSize},
    {Architecture::kS390, "s390", ThpSizeFrom::kArchitecture, kMiB},
    {Architecture::kSparc, "sparc", ThpSizeFrom::kPageSize},
    {Architecture::kX86, "x86", ThpSizeFrom::kPageSize},
};

}  // namespace

const ThpHook& thp_hook(Architecture architecture) {
  const ThpHook* found = kHooks;
  for (const ThpHook& hook : kHooks)
    if (hook.architecture == architecture) found = &hook;
  return *found;
}

std::uint64_t derived_thp_size(const ThpHook& hook, std::uint64_t page_size) {
  constexpr std::uint64_t kEntry = 8;
  switch (hook.from) {
    case ThpSizeFrom::kPageSize:
      return page_size / kEntry * page_size;
    case ThpSizeFrom::kArchitecture:
      return hook.size;
    case ThpSizeFrom::kKernel:
      break;
  }
  return 0;
}

std::uint64_t verified_thp_size(const PlatformFacts& facts) {
  const std::uint64_t derived =
      derived_thp_size(thp_hook(facts.architecture), facts.page_size);
  return derived != 0 && derived == facts.thp_size ? derived : facts.thp_size;
}

}  // namespace faultline::alloc
