// SPDX-License-Identifier: Apache-2.0
//
// /proc/PID/smaps: what each mapping really holds, found by walking its page tables.
//
// Stands for: struct mem_size_stats, smaps_pte_range(), show_smap(), show_smaps_rollup()
// (fs/proc/task_mmu.c, v4.15-6.18).  Costs no virtual time.
#pragma once

#include <cstdint>
#include <string>

#include "kernel_model/mm/vma.h"

namespace faultline::kernel {

class Mm;

// In bytes.
struct MemSizeStats {
  std::uint64_t rss = 0, pss = 0, pss_dirty = 0, pss_anon = 0, pss_file = 0, pss_shmem = 0;
  std::uint64_t shared_clean = 0, shared_dirty = 0, private_clean = 0, private_dirty = 0;
  std::uint64_t referenced = 0, anonymous = 0, lazyfree = 0;
  std::uint64_t anonymous_thp = 0, shmem_thp = 0;
  std::uint64_t shared_hugetlb = 0, private_hugetlb = 0;
  std::uint64_t swap = 0, swap_pss = 0, locked = 0;

  MemSizeStats& operator+=(const MemSizeStats& other);
};

[[nodiscard]] MemSizeStats smap_gather_stats(Mm& mm, const Vma& vma);
// The sum over all mappings.
[[nodiscard]] MemSizeStats smaps_rollup(Mm& mm);

// Whole files.
[[nodiscard]] std::string smaps_text(Mm& mm);
[[nodiscard]] std::string smaps_rollup_text(Mm& mm);

}  // namespace faultline::kernel
