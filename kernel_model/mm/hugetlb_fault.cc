// SPDX-License-Identifier: Apache-2.0
//
// Faults in MAP_HUGETLB mappings.
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kHugetlbFault{"hugetlb_fault", true}, kNoPage{"hugetlb_no_page", true},
    kWp{"hugetlb_wp", true}, kClearHugePage{"clear_huge_page", true};

class HugetlbFault {
 public:
  explicit HugetlbFault(Fault& fault)
      : fault_(fault),
        mapping_(*fault.vma.hugetlb),
        pool_(mapping_.pool),
        entries_(fault.pages, pool_),
        head_{fault.at.v & ~(pool_.size - 1)} {
    const unsigned page_shift = fault.kernel.profile().geometry.page_shift;
    index_ = ((head_ - fault.vma.start) >> (page_shift + pool_.order)) +
             (fault.vma.vm_pgoff >> pool_.order);
  }

  FaultResult handle() {
    Table* table = entries_.alloc_table(fault_.task, head_);
    if (table == nullptr) return FaultResult::kOom;
    Mutex& mutex = fault_.kernel.hugetlb().fault_mutex(mapping_, index_);
    mutex.lock(fault_.task);
    const Pte entry = entries_.get(*table, head_);
    FaultResult result = FaultResult::kDone;
    if (entry.none())
      result = no_page(*table);
    else if (fault_.write() && !entry.has(Pte::kWrite))
      result = wp(*table, entry);
    else
      set_accessed(*table);
    mutex.unlock(fault_.task);
    return result;
  }

 private:
  [[nodiscard]] bool shared() const { return (fault_.vma.vm_flags & VM_SHARED) != 0; }
  [[nodiscard]] bool may_write() const { return (fault_.vma.vm_flags & VM_WRITE) != 0; }

  MaybePfn alloc() {
    const bool reserved = mapping_.reserves && !mapping_.taken.contains(index_);
    fault_.task.charge(fault_.pages.costs().page_alloc);
    fault_.task.sync();
    const auto head = fault_.kernel.hugetlb().alloc(pool_, fault_.task.node(), reserved);
    if (head) mapping_.taken.insert(index_);
    return head;
  }

  // The page is cleared under the mutex alone.
  FaultResult no_page(Table& table) {
    Scope scope(fault_.task, kNoPage);
    const auto cached = mapping_.cache.find(index_);
    Pfn head;
    if (cached != mapping_.cache.end()) {
      head = cached->second;
      Page& page = fault_.kernel.phys().page(head);
      ++page.refcount;
      ++page.mapcount;
    } else {
      const auto fresh = alloc();
      if (!fresh) return FaultResult::kSigbus;
      head = *fresh;
      Scope clear(fault_.task, kClearHugePage);
      clear_pages(fault_.task, fault_.kernel, head, pool_.size);
      if (shared()) {
        mapping_.cache[index_] = head;
        ++fault_.kernel.phys().page(head).refcount;
      }
    }
    std::uint64_t bits = fault_.page_bits();
    if (may_write() && (shared() || fault_.write())) bits |= Pte::kWrite;
    Ptl lock(fault_.task, fault_.pages, entries_.lock_page(table));
    entries_.set(table, head_, head, bits);
    fault_.task.charge(fault_.pages.costs().pmd_set);
    fault_.mm.hugetlb_bytes += pool_.size;
    return FaultResult::kDone;
  }

  void set_accessed(Table& table) {
    Ptl lock(fault_.task, fault_.pages, entries_.lock_page(table));
    entries_.change(table, head_, fault_.accessed_bits(), 0);
    fault_.task.charge(fault_.pages.costs().pmd_set);
  }

  // hugetlb_wp(): a page that nobody else maps is written in place, another is copied.
  FaultResult wp(Table& table, Pte entry) {
    Scope scope(fault_.task, kWp);
    Page& old = fault_.kernel.phys().page(entry.pfn());
    if (!shared() && old.mapcount > 1) {
      const auto copy = alloc();
      if (copy) return replace(table, entry.pfn(), *copy);
      if (!mapping_.reserves) return FaultResult::kSigbus;
      unmap_ref_private(entry.pfn());
    }
    Ptl lock(fault_.task, fault_.pages, entries_.lock_page(table));
    entries_.change(table, head_, Pte::kWrite | fault_.accessed_bits(), 0);
    fault_.task.charge(fault_.pages.costs().pmd_set);
    return FaultResult::kDone;
  }

  FaultResult replace(Table& table, Pfn from, Pfn to) {
    copy_pages(fault_.task, fault_.kernel, from, to, pool_.size);
    Page& old = fault_.kernel.phys().page(from);
    {
      Ptl lock(fault_.task, fault_.pages, entries_.lock_page(table));
      entries_.clear(table, head_);
      entries_.set(table, head_, to, fault_.page_bits() | Pte::kWrite);
      fault_.mm.process().access_caches.forget();
      fault_.task.charge(fault_.pages.costs().pmd_set);
    }
    flush_tlb_range(fault_.task, fault_.pages, {head_, head_ + pool_.size}, pool_.size);
    --old.mapcount;
    if (--old.refcount == 0) fault_.kernel.hugetlb().free(pool_, from);
    return FaultResult::kDone;
  }

  // The owner of the reservation takes the page away from the processes forked from it:
  // they get SIGBUS at their next access.
  void unmap_ref_private(Pfn page) {
    for (const auto& process : fault_.kernel.processes()) {
      Mm& mm = process->mm();
      if (&mm == &fault_.mm) continue;
      Vma* vma = mm.vma_at(head_);
      if (vma == nullptr || !vma->hugetlb || vma->hugetlb->id != mapping_.id) continue;
      if (mm.pages().look(head_).pfn != page) continue;
      unmap_hugepage_range(fault_.task, mm.pages(), *vma, {head_, head_ + pool_.size});
    }
  }

  Fault& fault_;
  HugetlbMapping& mapping_;
  HugetlbPool& pool_;
  HugetlbEntries entries_;
  VirtAddr head_;
  std::uint64_t index_ = 0;
};

}  // namespace

FaultResult hugetlb_fault(Fault& fault) {
  Scope scope(fault.task, kHugetlbFault);
  return HugetlbFault(fault).handle();
}

}  // namespace faultline::kernel
