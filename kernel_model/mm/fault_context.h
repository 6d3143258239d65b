// SPDX-License-Identifier: Apache-2.0
//
// One page fault on its way through the kernel, and the steps that handle it.
//
// Stands for: struct vm_fault and VM_FAULT_* (include/linux/mm.h, mm_types.h, v4.15-6.18).
#pragma once

#include <cstdint>
#include <optional>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

inline constexpr Centre kHandleMmFault{"handle_mm_fault", true},
    kHandleMmFaultInner{"__handle_mm_fault", true},
    kDoAnonymousPage{"do_anonymous_page", true};

enum class FaultResult : std::uint8_t {
  kDone,      // 0: the access is repeated (and may fault again)
  kFallback,  // VM_FAULT_FALLBACK: the huge path gives over to base pages
  kRetry,     // VM_FAULT_RETRY: again, under mmap_lock
  kIo,        // the same, when what Fault::io names has been read from its device
  kOom,
  kSigsegv,
  kSigbus,
};

// What a fault waits for with no lock held: a page of a file, or (no file) a swap slot.
struct FaultIo {
  FileRef file;
  std::uint64_t index = 0;
};

struct Fault {
  Task& task;
  Kernel& kernel;
  Mm& mm;
  PageTables& pages;
  Vma& vma;
  VirtAddr at;
  Access access;
  bool under_vma_lock;  // FAULT_FLAG_VMA_LOCK
  FaultIo io{};

  [[nodiscard]] bool write() const { return access == Access::kWrite; }
  [[nodiscard]] bool locked() const { return (vma.vm_flags & VM_LOCKED) != 0; }
  [[nodiscard]] std::uint64_t accessed_bits() const {
    return write() ? Pte::kYoung | Pte::kDirty : Pte::kYoung;
  }
  // The bits of an entry that maps a page for this access, without kWrite.
  [[nodiscard]] std::uint64_t page_bits() const {
    return Pte::kPresent | Pte::kUser | accessed_bits();
  }
};

// Counts the fault, then __handle_mm_fault().
FaultResult handle_mm_fault(Fault& fault);

// --- huge_fault.cc, huge_wp.cc
// The PMD entry is none: try to map a whole huge page.
FaultResult do_huge_pmd_anonymous_page(Fault& fault, Table& pmd);
// huge_pmd_set_accessed(): the fault was for the accessed or dirty bit.
FaultResult huge_pmd_set_accessed(Fault& fault, Table& pmd, Pte entry);
// A write to a read-only huge PMD.
FaultResult do_huge_pmd_wp_page(Fault& fault, Table& pmd, Pte entry);
// hugepage_vma_check() and its like: may a fault in this VMA try a huge page?
// thp_possible leaves out what sysfs says.
// prctl(PR_SET_THP_DISABLE) keeps huge pages out of this VMA.
[[nodiscard]] bool vma_thp_disabled(const Mm& mm, const Vma& vma);
[[nodiscard]] bool thp_possible(const Kernel& kernel, const Mm& mm, const Vma& vma);
[[nodiscard]] bool thp_allowed(const Kernel& kernel, const Mm& mm, const Vma& vma);

// The wait of kIo, with no lock held.
FaultResult wait_for_io(Task& task, Kernel& kernel, const FaultIo& io);

// --- anon_fault.cc
// wp_page_copy(), do_cow_fault(): a page of the mm's own takes the place of `old`: the zero
// page, a file's, a shared one, or none.  `source`: what it copies; none: it is cleared.
FaultResult wp_page_copy(Fault& fault, Table& table, Pte old, std::optional<Pfn> source);
// The PMD entry is none or a table.
FaultResult handle_pte_fault(Fault& fault, Table& pmd);

// --- anon_vma.cc
// anon_vma_prepare(), __vmf_anon_prepare(): kRetry if that needs mmap_lock, which this
// fault doesn't hold and can't get at once.
FaultResult anon_vma_prepare(Fault& fault);

}  // namespace faultline::kernel
