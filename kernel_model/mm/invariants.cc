// SPDX-License-Identifier: Apache-2.0
//
// Invariants of the VMA side: see invariants.h.
#include "kernel_model/mm/invariants.h"

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "sim/check.h"

namespace faultline::kernel {

namespace {

struct Sums {
  std::uint64_t total = 0, data = 0, exec = 0, stack = 0, locked = 0, charged = 0;
};

void add(Sums& sums, const Vma& vma, std::uint64_t pages) {
  const bool write = (vma.vm_flags & VM_WRITE) != 0;
  const bool stack = (vma.vm_flags & VM_GROWSDOWN) != 0;
  const bool shared = (vma.vm_flags & VM_SHARED) != 0;
  sums.total += pages;
  if (stack)
    sums.stack += pages;
  else if (write && !shared)
    sums.data += pages;
  else if (!write && (vma.vm_flags & VM_EXEC) != 0)
    sums.exec += pages;
  if ((vma.vm_flags & VM_LOCKED) != 0) sums.locked += pages;
  if ((vma.vm_flags & VM_ACCOUNT) != 0) sums.charged += pages;
}

void check_vma(const Mm& mm, const Vma& vma) {
  FAULTLINE_CHECK(page_aligned(mm, vma.start));
  FAULTLINE_CHECK(page_aligned(mm, vma.end));
  FAULTLINE_CHECK_LE(vma.end.v, mm.kernel().profile().layout.task_size);
  // An access that is allowed now was allowed to be allowed.
  FAULTLINE_CHECK_EQ(vma.vm_flags & kVmAccessFlags & ~(vma.vm_flags >> 4), 0U);
  constexpr std::uint64_t kBoth = VM_HUGEPAGE | VM_NOHUGEPAGE;
  FAULTLINE_CHECK((vma.vm_flags & kBoth) != kBoth);
  FAULTLINE_CHECK_EQ(vma.anon_vma_chain == 0, vma.anon_vma == nullptr);
}

Sums sums_of(const Mm& mm) {
  Sums sums;
  for (const Vma& vma : mm.vmas) add(sums, vma, pages_of(mm, vma.bytes()));
  return sums;
}

}  // namespace

void check_vmas_in_order(const Mm& mm) {
  mm.vmas.check();
  for (const Vma& vma : mm.vmas) check_vma(mm, vma);
}

void check_vma_invariants(const Mm& mm) {
  check_vmas_in_order(mm);
  const Sums sums = sums_of(mm);
  FAULTLINE_CHECK_EQ(mm.total_vm, sums.total);
  FAULTLINE_CHECK_EQ(mm.data_vm, sums.data);
  FAULTLINE_CHECK_EQ(mm.exec_vm, sums.exec);
  FAULTLINE_CHECK_EQ(mm.stack_vm, sums.stack);
  FAULTLINE_CHECK_EQ(mm.locked_vm, sums.locked);
  FAULTLINE_CHECK_LE(mm.total_vm, mm.hiwater_vm);
  FAULTLINE_CHECK(mm.start_brk <= mm.brk);
}

void check_invariants(Kernel& kernel) {
  std::uint64_t charged = 0;
  for (const auto& process : kernel.processes()) {
    check_vma_invariants(process->mm());
    charged += sums_of(process->mm()).charged;
  }
  for (const auto& [id, file] : kernel.mm_shared().files.all()) charged += file->committed;
  FAULTLINE_CHECK_EQ(kernel.committed_pages, charged);
  check_page_invariants(kernel);
  check_tlbs(kernel);
}

}  // namespace faultline::kernel
