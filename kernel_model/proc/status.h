// SPDX-License-Identifier: Apache-2.0
//
// The memory lines of /proc/PID/status.
//
// Stands for: task_mem() (fs/proc/task_mmu.c, v4.15-6.18), hugetlb_report_usage().
#pragma once

#include <cstdint>
#include <string>

namespace faultline::kernel {

class Mm;

// In bytes.
struct StatusMemory {
  std::uint64_t vm_peak = 0, vm_size = 0, vm_lck = 0, vm_pin = 0, vm_hwm = 0, vm_rss = 0;
  std::uint64_t rss_anon = 0, rss_file = 0, rss_shmem = 0;
  std::uint64_t vm_data = 0, vm_stk = 0, vm_exe = 0, vm_lib = 0, vm_pte = 0, vm_swap = 0;
  std::uint64_t hugetlb_pages = 0;
};

[[nodiscard]] StatusMemory task_mem(Mm& mm);
[[nodiscard]] std::string status_text(Mm& mm);

}  // namespace faultline::kernel
