// SPDX-License-Identifier: Apache-2.0
//
// The address space of a process.
//
// Stands for: struct mm_struct (include/linux/mm_types.h, v4.15-6.18).
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/vma.h"
#include "kernel_model/types.h"
#include "sim/locks.h"

namespace faultline::kernel {

class Mm {
 public:
  explicit Mm(Process& process);
  ~Mm();

  [[nodiscard]] Process& process() const { return process_; }
  [[nodiscard]] Kernel& kernel() const { return process_.kernel(); }
  [[nodiscard]] PageTables& pages() { return *pages_; }
  [[nodiscard]] RwSem& mmap_lock() { return *mmap_lock_; }
  [[nodiscard]] SpinLock& page_table_lock() { return *page_table_lock_; }

  // The VMAs by start address.  Changes only under mmap_lock held for write.
  using VmaMap = std::map<std::uint64_t, Vma>;
  VmaMap vmas;
  // First VMA that ends above `at` (find_vma); null if none.
  [[nodiscard]] Vma* find_vma(VirtAddr at);
  [[nodiscard]] Vma* vma_at(VirtAddr at);     // the one that holds `at`; null if none

  VirtAddr start_brk, brk;
  VirtAddr mmap_base;
  // Counters of struct mm_struct, in base pages.
  std::uint64_t total_vm = 0, data_vm = 0, exec_vm = 0, stack_vm = 0, locked_vm = 0;
  std::uint64_t rss_anon = 0, rss_file = 0, rss_shmem = 0;
  std::uint64_t hiwater_rss = 0;              // exact here: kept by rss updates
  std::uint64_t hugetlb_bytes = 0;
  std::uint64_t mm_lock_seq = 0;              // per-VMA locks

  [[nodiscard]] std::uint64_t rss() const { return rss_anon + rss_file + rss_shmem; }

 private:
  Process& process_;
  std::unique_ptr<PageTables> pages_;
  std::unique_ptr<RwSem> mmap_lock_;
  std::unique_ptr<SpinLock> page_table_lock_;
};

}  // namespace faultline::kernel
