// SPDX-License-Identifier: Apache-2.0
//
// What the kernel counts and promises for mappings: total_vm and its parts, and committed
// memory (overcommit).
//
// Stands for: vm_stat_account(), accountable_mapping() (mm/mmap.c), __vm_enough_memory(),
// vm_commit_limit() (mm/util.c), v4.15-6.18.  Model: no RLIMIT_AS, _DATA or _MEMLOCK; the
// caller has no CAP_SYS_ADMIN.
#pragma once

#include <cstdint>

#include "kernel_model/types.h"

namespace faultline::kernel {

class Kernel;
class Mm;
class PhysMem;

// Adds `pages` (may be negative) of a mapping with `vm_flags` to the mm's counters.
void vm_stat_account(Mm& mm, std::uint64_t vm_flags, std::int64_t pages);

// Private writable mappings count against the commit limit unless MAP_NORESERVE.
[[nodiscard]] bool accountable_mapping(std::uint64_t vm_flags);

// security_vm_enough_memory_mm(): promises `pages`, or refuses.
[[nodiscard]] bool vm_enough_memory(Mm& mm, std::uint64_t pages);
void vm_unacct_memory(Kernel& kernel, std::uint64_t pages);
// CommitLimit of /proc/meminfo, in pages.
[[nodiscard]] std::uint64_t vm_commit_limit(Kernel& kernel);

}  // namespace faultline::kernel
