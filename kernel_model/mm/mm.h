// SPDX-License-Identifier: Apache-2.0
//
// The address space of a process.
//
// Stands for: struct mm_struct (include/linux/mm_types.h, v4.15-6.18).
#pragma once

#include <cstdint>
#include <memory>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/vma.h"
#include "kernel_model/mm/vma_set.h"
#include "kernel_model/types.h"
#include "sim/locks.h"

namespace faultline::kernel {

class VrangeRoot;  // kernel_model/mm/vrange.h

class Mm {
 public:
  explicit Mm(Process& process);
  ~Mm();
  Mm(const Mm&) = delete;
  Mm& operator=(const Mm&) = delete;

  [[nodiscard]] Process& process() const { return process_; }
  [[nodiscard]] Kernel& kernel() const { return process_.kernel(); }
  [[nodiscard]] PageTables& pages() { return *pages_; }
  [[nodiscard]] RwSem& mmap_lock() { return *mmap_lock_; }
  [[nodiscard]] SpinLock& page_table_lock() { return *page_table_lock_; }

  // mmap_write_unlock and mmap_write_downgrade also open all VMAs that were write-locked
  // meanwhile.
  void mmap_write_lock(Task& task) { mmap_lock_->down_write(task); }
  void mmap_write_unlock(Task& task);
  void mmap_write_downgrade(Task& task);
  void mmap_read_lock(Task& task) { mmap_lock_->down_read(task); }
  void mmap_read_unlock(Task& task) { mmap_lock_->up_read(task); }

  // Per-VMA locks; without them in this kernel and machine the first is false, the rest do
  // nothing.
  [[nodiscard]] bool has_vma_locks() const { return vma_lock_stats_ != nullptr; }
  // A fault enters `vma`, just found without holding mmap_lock; false: take mmap_lock.
  [[nodiscard]] bool vma_start_read(Task& task, Vma& vma) {
    return vma_lock_stats_ != nullptr &&
           vma.lock.start_read(task, mm_lock_seq, *vma_lock_stats_);
  }
  void vma_end_read(Task& task, Vma& vma) { vma.lock.end_read(task, *vma_lock_stats_); }
  // mmap_lock is held for write; waits for the faults inside `vma`.
  void vma_start_write(Task& task, Vma& vma) {
    if (vma_lock_stats_ != nullptr)
      vma.lock.start_write(task, mm_lock_seq, *vma_lock_stats_);
  }

  // Changes only under mmap_lock held for write.
  VmaSet vmas;
  // First VMA that ends above `at` (find_vma); null if none.
  [[nodiscard]] Vma* find_vma(VirtAddr at) { return vmas.find(at); }
  [[nodiscard]] Vma* vma_at(VirtAddr at) {
    return vmas.at(at);
  }  // the one that holds `at`; null if none

  VirtAddr start_brk, brk;
  VirtAddr mmap_base;
  std::uint64_t def_flags = 0;  // added to each new mapping (mlockall)
  // Counters of struct mm_struct, in base pages.
  std::uint64_t total_vm = 0, data_vm = 0, exec_vm = 0, stack_vm = 0, locked_vm = 0;
  std::uint64_t hiwater_vm = 0;
  std::uint64_t rss_anon = 0, rss_file = 0, rss_shmem = 0;
  std::uint64_t hiwater_rss = 0;  // exact here: kept by rss updates
  std::uint64_t hugetlb_bytes = 0;
  std::uint64_t swap_ents = 0;      // MM_SWAPENTS: pages that are swapped out
  std::uint64_t mm_lock_seq = 1;    // per-VMA locks
  std::uint64_t vma_purges = 0;     // pages purged of VMAs that are volatile by a flag
  std::uint32_t grabs = 0;          // MmGrab
  bool thp_disabled = false;        // prctl(PR_SET_THP_DISABLE)
  bool thp_except_advised = false;  // … with PR_THP_DISABLE_EXCEPT_ADVISED (6.18)
  bool exiting = false;             // mm_users is 0: the last thread is leaving

  // Volatile ranges; null unless the kernel keeps them in a tree.
  [[nodiscard]] VrangeRoot* vranges() const { return vranges_.get(); }

  [[nodiscard]] std::uint64_t rss() const { return rss_anon + rss_file + rss_shmem; }

 private:
  Process& process_;
  LockStats* vma_lock_stats_ = nullptr;
  std::unique_ptr<RwSem> mmap_lock_;
  std::unique_ptr<SpinLock> page_table_lock_;
  std::unique_ptr<PageTables> pages_;
  std::unique_ptr<VrangeRoot> vranges_;
};

// Somebody has come to the page tables by a page's reverse map, without mmap_lock: the mm
// stays until he has gone (mmgrab()).
class MmGrab {
 public:
  explicit MmGrab(Mm& mm) : mm_(mm) { ++mm_.grabs; }
  ~MmGrab() { --mm_.grabs; }
  MmGrab(const MmGrab&) = delete;
  MmGrab& operator=(const MmGrab&) = delete;

 private:
  Mm& mm_;
};

}  // namespace faultline::kernel
