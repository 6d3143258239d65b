// SPDX-License-Identifier: Apache-2.0
//
// The page tables of a process: real multi-level tables by the machine's geometry, and the work on
// ranges of them that the VMA code asks for.  All calls that change something expect the caller to
// hold the locks that the kernel holds there; page-table spinlocks are taken inside.
//
// Stands for: mm/memory.c (zap, free_pgtables), mm/huge_memory.c (PMD work), mm/mprotect.c,
// mm/mremap.c (v4.15-6.18).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "kernel_model/mm/vma.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;

// What one base page's worth of address space looks like from user space and to smaps.
struct PageView {
  enum Kind : std::uint8_t { kNone, kBase, kHuge, kZero, kHugeZero, kSwap, kGuard, kHugetlb } kind = kNone;
  Pfn pfn;
  bool writable = false, dirty = false, young = false, lazyfree = false;
};

class PageTables {
 public:
  PageTables(Kernel& kernel, Mm& mm);
  ~PageTables();

  // The hardware's view: would this access go through without a fault?  Costs nothing.
  [[nodiscard]] bool accessible(VirtAddr at, Access access) const;
  [[nodiscard]] PageView look(VirtAddr at) const;
  // Calls f(range, view) for each run of pages or huge page that is present in `range`, ascending;
  // skips empty tables without walking them.  For smaps and checks; costs nothing.
  void for_each_present(Range range, const std::function<void(Range, const PageView&)>& f) const;

  // unmap_vmas: clears `range` of `vma`, splitting PMD-mapped huge pages at its edges, flushing TLBs,
  // freeing the pages after the flush in mmu_gather batches.  Callers have told the process that the
  // contents go (Process::discarded).
  void zap_page_range(Task& task, Vma& vma, Range range);
  // free_pgtables: frees the tables that lie wholly in [floor, ceiling) around the unmapped `range`;
  // floor and ceiling are the ends of the neighbouring VMAs (0 and the top if there are none).
  void free_pgtables(Task& task, Range range, VirtAddr floor, VirtAddr ceiling);
  // A VMA boundary comes to lie at `at`: a huge PMD across it is split.
  void vma_adjust_trans_huge(Task& task, Vma& vma, VirtAddr at);
  // change_protection after vma's flags have changed to `new_flags`.
  void change_protection(Task& task, Vma& vma, Range range, std::uint64_t new_flags);
  // move_page_tables of mremap.
  void move_page_tables(Task& task, Vma& from, VirtAddr old_start, Vma& to, VirtAddr new_start,
                        std::uint64_t bytes);

  // Outside of virtual time: base pages that a program has in place when it starts, because exec and
  // its start-up code have touched them.  A writable private VMA gets anonymous pages, a read-only
  // file's VMA page-cache pages (rss_file), a VM_PFNMAP one entries that only need tables.
  void map_at_start(Vma& vma, Range range);

  // Bytes of PTE+PMD+PUD tables incl. deposited ones (VmPTE * 1024).
  [[nodiscard]] std::uint64_t pgtables_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::kernel
