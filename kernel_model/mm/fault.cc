// SPDX-License-Identifier: Apache-2.0
//
// The way in: locks, the VMA, the access check, counters.
#include "kernel_model/mm/fault.h"

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/shadow_mmu.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

// Stands at a node of the attribution tree while it lives; as Scope, with the node known
// already.
class StandAt {
 public:
  StandAt(Task& task, CentreTree::Node* node) : task_(task), saved_(task.where()) {
    task.stand_at(node);
  }
  ~StandAt() { task_.stand_at(saved_); }
  StandAt(const StandAt&) = delete;
  StandAt& operator=(const StandAt&) = delete;

 private:
  Task& task_;
  CentreTree::Node* saved_;
};

// access_error() (x86), the vm_flags check of do_page_fault() (arm64): writing implies
// reading.
bool access_allowed(const Vma& vma, Access access) {
  if (access == Access::kWrite) return (vma.vm_flags & VM_WRITE) != 0;
  return (vma.vm_flags & kVmAccessFlags) != 0;
}

FaultResult handle_mm_fault_inner(Fault& fault) {
  PageTables& pages = fault.pages;
  Table* pmd = pages.tree().find_pmd_table(fault.at);
  if (pmd == nullptr)
    pmd = pages.alloc_tables_to(fault.task, fault.at, pages.tree().pmd_level());
  if (pmd == nullptr) return FaultResult::kOom;
  const Pte entry = pages.tree().get(*pmd, fault.at);
  if (entry.none()) {
    if (thp_allowed(fault.kernel, fault.mm, fault.vma)) {
      const FaultResult result = do_huge_pmd_anonymous_page(fault, *pmd);
      if (result != FaultResult::kFallback) return result;
    }
  } else if (entry.is_leaf()) {
    if (!fault.write() || entry.has(Pte::kWrite))
      return huge_pmd_set_accessed(fault, *pmd, entry);
    const FaultResult result = do_huge_pmd_wp_page(fault, *pmd, entry);
    if (result != FaultResult::kFallback) return result;
  }
  return handle_pte_fault(fault, *pmd);
}

// lock_vma_under_rcu() (mm/memory.c, v6.4-6.18): the VMA that holds `at`, entered; null:
// use mmap_lock.
Vma* lock_vma_under_rcu(Task& task, Mm& mm, VirtAddr at) {
  const VmaLockRule rule = mm.kernel().config().per_vma_lock;
  task.charge(mm.pages().costs().vma_lookup);
  task.sync();
  Vma* vma = mm.vma_at(at);
  const bool needs_anon_vma = rule == VmaLockRule::k6_4 || rule == VmaLockRule::k6_8;
  const bool usable = vma != nullptr && (vma->anonymous || rule != VmaLockRule::k6_4) &&
                      !(vma->anonymous && needs_anon_vma && !vma->anon_vma);
  if (usable && mm.vma_start_read(task, *vma)) return vma;
  ++mm.kernel().vmstat().vma_lock_abort;
  return nullptr;
}

FaultResult fault_in(Task& task, Mm& mm, Vma& vma, VirtAddr at, Access access,
                     bool under_vma_lock, FaultIo& io) {
  if (!access_allowed(vma, access)) return FaultResult::kSigsegv;
  Fault fault{task, mm.kernel(), mm, mm.pages(), vma, at, access, under_vma_lock};
  const FaultResult result = handle_mm_fault(fault);
  if (result == FaultResult::kIo) [[unlikely]]
    io = fault.io;
  return result;
}

FaultResult fault_under_vma_lock(Task& task, Mm& mm, VirtAddr at, Access access,
                                 FaultIo& io) {
  Vma* vma = lock_vma_under_rcu(task, mm, at);
  if (vma == nullptr) return FaultResult::kRetry;
  const FaultResult result = fault_in(task, mm, *vma, at, access, true, io);
  mm.vma_end_read(task, *vma);
  Vmstat& vmstat = mm.kernel().vmstat();
  if (result == FaultResult::kRetry || result == FaultResult::kIo)
    ++vmstat.vma_lock_retry;
  else
    ++vmstat.vma_lock_success;
  return result;
}

FaultResult fault_under_mmap_lock(Task& task, Mm& mm, VirtAddr at, Access access,
                                  FaultIo& io) {
  mm.mmap_read_lock(task);
  task.charge(mm.pages().costs().vma_lookup);
  Vma* vma = mm.vma_at(at);
  const FaultResult result = vma == nullptr
                                 ? FaultResult::kSigsegv
                                 : fault_in(task, mm, *vma, at, access, false, io);
  mm.mmap_read_unlock(task);
  return result;
}

Signal signal_of(FaultResult result) {
  switch (result) {
    case FaultResult::kSigsegv:
      return Signal::kSegv;
    case FaultResult::kSigbus:
      return Signal::kBus;
    case FaultResult::kOom:
      return Signal::kKill;
    default:
      return Signal::kNone;
  }
}

}  // namespace

FaultResult handle_mm_fault(Fault& fault) {
  Scope scope(fault.task, kHandleMmFault);
  fault.pages.rss_stat().fault_event(fault.task);
  const bool each_entry = fault.kernel.config().pgfault_counts_retries;
  if (each_entry) ++fault.kernel.vmstat().pgfault;
  FaultResult result;
  if (fault.vma.hugetlb) {
    result = hugetlb_fault(fault);
  } else {
    Scope inner(fault.task, kHandleMmFaultInner);
    result = handle_mm_fault_inner(fault);
  }
  const bool again = result == FaultResult::kRetry || result == FaultResult::kIo;
  if (!each_entry && !again) ++fault.kernel.vmstat().pgfault;
  return result;
}

// Model: the counter rises when the wait begins; the kernel counts the fault that began it.
FaultResult wait_for_io(Task& task, Kernel& kernel, const FaultIo& io) {
  ++kernel.vmstat().pgmajfault;
  if (!io.file)
    return kernel.mm_shared().swap.read(task, static_cast<std::uint32_t>(io.index))
               ? FaultResult::kRetry
               : FaultResult::kOom;
  return filemap_read(task, kernel, *io.file, io.index) ? FaultResult::kRetry
                                                        : FaultResult::kOom;
}

Signal do_user_page_fault(Task& task, Process& process, VirtAddr at, Access access) {
  Mm& mm = process.mm();
  const MmShared::FaultPath path = mm.kernel().mm_shared().fault_path(task);
  StandAt entry(task, path.entry);
  task.charge(mm.pages().costs().fault_entry_exit);
  StandAt body(task, path.do_page_fault);
  FaultResult result = FaultResult::kRetry;
  FaultIo io;
  bool major = false;
  if (mm.has_vma_locks()) result = fault_under_vma_lock(task, mm, at, access, io);
  while (result == FaultResult::kRetry || result == FaultResult::kIo) {
    if (result == FaultResult::kIo) {
      major = true;
      if (wait_for_io(task, mm.kernel(), io) == FaultResult::kOom) return Signal::kKill;
    }
    result = fault_under_mmap_lock(task, mm, at, access, io);
  }
  if (process.oom_killed) return Signal::kKill;
  if (result == FaultResult::kDone) {
    ++(major ? process.majflt : process.minflt);
    if (ShadowMmu* const shadow = mm.kernel().shadow_mmu()) [[unlikely]]
      shadow->page_fault(task);
  }
  return signal_of(result);
}

}  // namespace faultline::kernel
