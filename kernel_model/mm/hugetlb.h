// SPDX-License-Identifier: Apache-2.0
//
// Huge pages from pools that are set aside: MAP_HUGETLB.
//
// The idea: a mapping reserves its pages when it is made, so that its faults can't fail;
// mmap answers ENOMEM instead.  A pool may grow by surplus pages from the buddy lists, up
// to nr_overcommit.  Faults of one page are serialised by a mutex, so that none clears in
// vain.
//
// Stands for: mm/hugetlb.c, fs/hugetlbfs/inode.c (v4.15-6.18).  Model: every mapping has a
// file of its own; gigantic pages (larger than the largest buddy block) can't be had at run
// time; pages larger than a PMD take PMD entries; no mremap; no cgroup limits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/types.h"
#include "sim/locks.h"

namespace faultline::kernel {

// struct hstate: the pages of one size.  Counts are pages of that size.
struct HugetlbPool {
  std::uint64_t size = 0;  // bytes
  unsigned order = 0;
  std::uint64_t nr_huge_pages = 0, free = 0, resv = 0, surplus = 0, nr_overcommit = 0;
  std::vector<std::vector<Pfn>> free_of_node;
  std::vector<std::uint64_t> surplus_of_node;
  unsigned next_node = 0;  // round robin
};

// What the VMAs of one mapping share: the file, its reservation map.
struct HugetlbMapping {
  HugetlbPool& pool;
  std::uint64_t id = 0;
  bool reserves = false;          // HPAGE_RESV_OWNER: the pages not taken yet are reserved
  std::set<std::uint64_t> taken;  // indexes whose reservation is used up
  std::map<std::uint64_t, Pfn> cache;  // shared mappings: the file's pages
};

class HugetlbPools {
 public:
  explicit HugetlbPools(Kernel& kernel);
  ~HugetlbPools();

  // The pool of MAP_HUGE_<log2>, the default one for 0; null: no such size.
  [[nodiscard]] HugetlbPool* hstate_sizelog(unsigned log2_size);
  [[nodiscard]] const std::vector<HugetlbPool>& pools() const { return pools_; }
  [[nodiscard]] HugetlbPool* default_pool() {
    return pools_.empty() ? nullptr : &pools_.front();
  }

  // Writing nr_hugepages: the pool becomes as large as it can.  Outside of virtual time.
  void set_max_huge_pages(HugetlbPool& pool, std::uint64_t count);
  // What KernelConfig asks for at boot.
  void boot();
  // As nodes/nodeN/hugepages/nr_hugepages: pages of that node alone are added.
  void add_on_node(HugetlbPool& pool, int node, std::uint64_t count);
  // hugetlb_acct_memory(): reserves `pages`, with surplus pages if need be.  False: not so
  // many.
  [[nodiscard]] bool reserve(HugetlbPool& pool, std::uint64_t pages);
  void unreserve(HugetlbPool& pool, std::uint64_t pages);
  // alloc_huge_page(): a reserved page, or one that nobody has reserved, or a surplus page.
  [[nodiscard]] MaybePfn alloc(HugetlbPool& pool, int node, bool reserved);
  void free(HugetlbPool& pool, Pfn head);
  [[nodiscard]] Mutex& fault_mutex(const HugetlbMapping& mapping, std::uint64_t index);
  [[nodiscard]] std::uint64_t next_mapping_id() { return ++last_id_; }

 private:
  [[nodiscard]] bool alloc_fresh(HugetlbPool& pool);
  [[nodiscard]] bool alloc_fresh_on(HugetlbPool& pool, int node);
  [[nodiscard]] bool alloc_surplus(HugetlbPool& pool, int node);
  void to_buddy(HugetlbPool& pool, Pfn head);
  [[nodiscard]] bool remove_pool_huge_page(HugetlbPool& pool, bool surplus);

  Kernel& kernel_;
  std::vector<HugetlbPool> pools_;
  std::vector<std::unique_ptr<Mutex>> mutexes_;
  std::uint64_t last_id_ = 0;
};

// MAP_HUGETLB: mmap with `length` as the caller gave it.  mmap_lock isn't held yet.
SysResult<VirtAddr> mmap_hugetlb(Task& task, Mm& mm, VirtAddr hint, std::uint64_t length,
                                 unsigned prot, unsigned flags);
// A fault in a VM_HUGETLB mapping.
FaultResult hugetlb_fault(Fault& fault);
// hugetlb_vm_op_split(): may a VMA begin or end at `at`?  True for other mappings.
[[nodiscard]] bool hugetlb_may_split(const Vma& vma, VirtAddr at);
// Before `part` of the VMA becomes one of its own: EINVAL if it can't.  As the kernel
// splits at the start before it looks at the end, that split stays.
[[nodiscard]] Errno hugetlb_check_split(Task& task, Mm& mm, Vma& vma, Range part);
// The VMA goes: reservations that it didn't use are given back.
void hugetlb_vm_op_close(Mm& mm, Vma& vma);
// unmap_hugepage_range().  `range` is a multiple of the pages.
void unmap_hugepage_range(Task& task, PageTables& pages, Vma& vma, Range range);
// MADV_DONTNEED (5.18): EINVAL for a start inside a page; the end is rounded down.
[[nodiscard]] Errno hugetlb_dontneed(Task& task, Mm& mm, Vma& vma, Range range);
// fork: the child has the pages, too, but no reservation.
[[nodiscard]] std::shared_ptr<HugetlbMapping> hugetlb_dup_mapping(const Vma& vma);
[[nodiscard]] bool copy_hugetlb_page_range(Task& task, PageTables& from, PageTables& to,
                                           Vma& vma);

// For the files of hugetlb alone: the entries that map one page.
class HugetlbEntries {
 public:
  HugetlbEntries(PageTables& pages, const HugetlbPool& pool);
  // huge_pte_alloc(), huge_pte_offset(): the table that holds the entries of `head`.
  [[nodiscard]] Table* alloc_table(Task& task, VirtAddr head) const {
    return pages_.alloc_tables_to(task, head, level_);
  }
  [[nodiscard]] Table* table(VirtAddr head) const {
    return pages_.tree().find(head, level_);
  }
  // huge_pte_lockptr().
  [[nodiscard]] TablePage* lock_page(const Table& table) const;
  [[nodiscard]] Pte get(const Table& table, VirtAddr head) const {
    return pages_.tree().get(table, head);
  }
  void set(Table& table, VirtAddr head, Pfn pfn, std::uint64_t bits) const;
  void change(Table& table, VirtAddr head, std::uint64_t with, std::uint64_t without) const;
  void clear(Table& table, VirtAddr head) const;
  [[nodiscard]] unsigned level() const { return level_; }

 private:
  PageTables& pages_;
  unsigned level_;
  std::uint64_t count_, step_;  // entries of a page; base pages from one to the next
  bool pmd_sized_;
};

}  // namespace faultline::kernel
