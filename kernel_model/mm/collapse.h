// SPDX-License-Identifier: Apache-2.0
//
// Turning a range of base pages into one huge page: khugepaged's work, and MADV_COLLAPSE's.
//
// The huge page is allocated with no lock held; then mmap_lock is held for write while all
// pages are copied and the missing ones cleared, so that the whole process stands still for
// as long as that takes (512 MiB with 64K pages).
//
// Stands for: hpage_collapse_scan_pmd(), collapse_huge_page(), madvise_collapse()
// (mm/khugepaged.c, v6.1-6.18; khugepaged_scan_pmd() before, from 3.9).  Model: no
// userfaultfd, no device or file pages.
#pragma once

#include <cstdint>

#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;
struct Vma;

enum class ScanResult : std::uint8_t {
  kFail,
  kSucceed,
  kPmdMapped,
  kPmdNull,  // no table for its PMD entry
  kPmdNone,  // no table below its PMD entry
  kExceedNonePte,
  kExceedSwapPte,
  kExceedSharedPte,
  kPageRo,
  kLackReferencedPage,
  kPageNull,
  kPageLru,
  kPageLock,  // a swapped page is being read
  kPageCount,
  kPageCompound,
  kAnyProcess,  // the mm is exiting
  kVmaNull,
  kVmaCheck,
  kAllocHugePageFail,
};

// Who collapses and what it puts up with.
struct CollapseControl {
  bool is_khugepaged = true;  // else MADV_COLLAPSE: the limits below don't count
  std::uint64_t max_ptes_none = 0;
  std::uint64_t max_ptes_swap = 0;
  std::uint64_t max_ptes_shared = 0;
  GfpReclaim reclaim = GfpReclaim::kDirect;
};

// __collapse_huge_page_swapin(): the range's swapped pages come back, one after the other.
// mmap_lock is held for read on entry; `locked` says whether it still is on return (a read
// from the device gives it up).  collapse_swapin.cc
ScanResult collapse_swapin(Task& task, Mm& mm, Range range, bool& locked);

// May a huge page ever lie in this VMA, whatever sysfs says?  (hugepage_vma_check() without
// enforce_sysfs.)
[[nodiscard]] bool collapse_allowed(const Mm& mm, const Vma& vma);

// Looks at the PMD range that starts at `at` and collapses it if it may.  mmap_lock is held
// for read on entry; `locked` says whether it still is on return (collapsing gives it up).
ScanResult collapse_scan_pmd(Task& task, Mm& mm, VirtAddr at,
                             const CollapseControl& control, bool& locked);

// MADV_COLLAPSE of one VMA's part.  mmap_lock is held for read on entry and on return; it
// may have been given up between, and the VMA may be gone.
Errno madvise_collapse(Task& task, Mm& mm, Vma& vma, Range range);

}  // namespace faultline::kernel
