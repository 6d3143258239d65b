// SPDX-License-Identifier: Apache-2.0
//
// What /proc and /sys show of a kernel's memory management, as files with the kernel's own
// texts.
#pragma once

#include <vector>

#include "kernel_model/proc/thp_sysfs.h"

namespace faultline::kernel {

// "proc/vmstat", meminfo, buddyinfo, lock_stat; "proc/1/maps", smaps, smaps_rollup, status
// (and vrange, with the patches) of each process that has not exited, numbered in their
// order; "sys/kernel/mm/transparent_hugepage/…".
[[nodiscard]] std::vector<PseudoFile> proc_files(Kernel& kernel);

}  // namespace faultline::kernel
