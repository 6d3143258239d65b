// SPDX-License-Identifier: Apache-2.0
//
// /sys/kernel/mm/transparent_hugepage: settings and counters of huge pages, khugepaged, and
// (from 6.8) each size below the PMD's.
//
// Stands for: mm/huge_memory.c (hugepage_attr, anon_stats_attrs), mm/khugepaged.c
// (khugepaged_attr), v3.9-6.18.  Model: no file, shmem and swap counters.
#pragma once

#include <string>
#include <vector>

namespace faultline::kernel {

class Kernel;

struct PseudoFile {
  std::string path;  // below its folder: "khugepaged/pages_to_scan"
  std::string text;
};

// None without huge pages.
[[nodiscard]] std::vector<PseudoFile> thp_sysfs(Kernel& kernel);

}  // namespace faultline::kernel
