// SPDX-License-Identifier: Apache-2.0
//
// The page tables of a process with their locks, and the work on ranges of them that the
// VMA code asks for.  All calls that change something expect the caller to hold the locks
// that the kernel holds there; page-table spinlocks are taken inside.
//
// Where to read: the tables themselves are page_table_tree.h; faults are fault.h; ranges
// are zap.cc, free_pgtables.cc, mprotect_pages.cc, move_page_tables.cc; huge pages
// huge_memory.cc.
//
// Stands for: mm/memory.c (zap, free_pgtables), mm/huge_memory.c (PMD work), mm/mprotect.c,
// mm/mremap.c (v4.15-6.18).
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/page_table_tree.h"
#include "kernel_model/mm/rss_stat.h"
#include "kernel_model/mm/vma.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;
class MmuGather;

// What one base page's worth of address space looks like from user space and to smaps.
struct PageView {
  enum Kind : std::uint8_t {
    kNone,
    kBase,
    kHuge,
    kZero,
    kHugeZero,
    kSwap,
    kGuard,
    kHugetlb,
    kPurged
  } kind = kNone;
  Pfn pfn;
  bool writable = false, dirty = false, young = false, lazyfree = false, file = false;
  bool operator==(const PageView&) const = default;
};

// Who zaps: an unmapping (guard marks go, too), MADV_DONTNEED (they stay; tables that are
// left empty go if the kernel has PT_RECLAIM), or MADV_GUARD_INSTALL (both stay).
enum class ZapFor : std::uint8_t { kUnmap, kDontneed, kGuard };

class PageTables {
 public:
  PageTables(Kernel& kernel, Mm& mm);
  ~PageTables();

  // The hardware's view: would this access go through without a fault?  Costs nothing.
  [[nodiscard]] bool accessible(VirtAddr at, Access access) const {
    return tree_.leaf_at(at).has_all(needs_[static_cast<std::size_t>(access)]);
  }
  // The same, and if so the entry becomes young, and dirty by a write, as hardware does it
  // (where it can; elsewhere an entry that is not yet so makes the access fault).
  // `assisted` becomes true if it had to set one of them.
  bool hw_access(VirtAddr at, Access access, bool* assisted = nullptr);
  [[nodiscard]] PageView look(VirtAddr at) const;
  // Calls f(range, view) for each run of equal base pages in one table (view.pfn is the
  // first one's) and each huge page that is present in `range`, ascending; skips empty
  // tables without walking them.  For smaps and checks; costs nothing.
  void for_each_present(Range range,
                        const std::function<void(Range, const PageView&)>& f) const;

  // unmap_vmas: clears `range` of `vma`, splitting PMD-mapped huge pages at its edges,
  // flushing TLBs, freeing the pages after the flush in mmu_gather batches.  Callers have
  // told the process that the contents go (Process::discarded).  True if it flushed.
  bool zap_page_range(Task& task, Vma& vma, Range range, ZapFor why = ZapFor::kUnmap);
  // free_pgtables: frees the tables that lie wholly in [floor, ceiling) around the unmapped
  // `range`; floor and ceiling are the ends of the neighbouring VMAs (0 and 0 if there are
  // none). `flushed`: the zap of the same mmu_gather has flushed already.
  void free_pgtables(Task& task, Range range, VirtAddr floor, VirtAddr ceiling,
                     bool flushed = false);
  // A VMA boundary comes to lie at `at`: a huge PMD across it is split.
  void vma_adjust_trans_huge(Task& task, Vma& vma, VirtAddr at);
  // change_protection to what `new_flags` allow; vma.vm_flags may be the old or the new
  // ones.
  void change_protection(Task& task, Vma& vma, Range range, std::uint64_t new_flags);
  // MADV_GUARD_INSTALL (false: no memory for tables), MADV_GUARD_REMOVE.
  [[nodiscard]] bool guard_install(Task& task, Vma& vma, Range range);
  void guard_remove(Task& task, Range range);
  // move_page_tables of mremap.
  void move_page_tables(Task& task, Vma& from, VirtAddr old_start, Vma& to,
                        VirtAddr new_start, std::uint64_t bytes);
  // mlock_vma_pages_range(): what `range` of a VMA maps whole becomes unevictable, or
  // evictable.
  void mlock_pages(Range range, bool locked);
  // madvise_free_single_vma on an anonymous VMA; the advice's own checks are the caller's.
  void madvise_free(Task& task, Range range);
  // copy_page_range of fork: what `from` has mapped is mapped in the child's VMA `to`, too,
  // for neither to write (private mappings).  Both mmap_locks are held for write.  False:
  // no memory for tables.
  [[nodiscard]] bool copy_page_range(Task& task, PageTables& child, Vma& from, Vma& to);
  // __split_huge_pmd: nothing if no huge PMD maps `at`.
  void split_huge_pmd(Task& task, VirtAddr at);

  // Outside of virtual time: base pages that a program has in place when it starts, because
  // exec and its start-up code have touched them.  A writable private VMA gets anonymous
  // pages, a read-only file's VMA page-cache pages (rss_file), a VM_PFNMAP one entries that
  // only need tables. `in_rss`: VmRSS shows them already; otherwise they are in the first
  // task's cache (rss_stat.h).
  void map_at_start(Vma& vma, Range range, bool in_rss = false);

  // Bytes of PTE+PMD+PUD tables incl. deposited ones (VmPTE * 1024).
  [[nodiscard]] std::uint64_t pgtables_bytes() const { return tree_.bytes(); }
  [[nodiscard]] RssStat& rss_stat() { return rss_; }

  // khugepaged_enter_vma(): the mm is on khugepaged's list from its first eligible fault
  // on, or as soon as a VMA that could hold a huge page is advised or grows.
  void khugepaged_enter(Task& task) {
    if (may_enter_khugepaged_) enter_khugepaged_list(task);
  }
  [[nodiscard]] bool may_enter_khugepaged() const { return may_enter_khugepaged_; }
  void khugepaged_enter_vma(Task& task, const Vma& vma) {
    if (may_enter_khugepaged_) enter_khugepaged_list_with(task, vma);
  }
  // MMF_HUGE_ZERO_PAGE: the mm holds one reference of the huge zero page until it exits.
  void note_huge_zero_page();

  // The piece of a compound page that is mapped at `at` by a PTE is replaced by the zero
  // page.
  void map_zero_page_instead(Task& task, VirtAddr at);
  // The huge entry at `at` becomes one entry for each of `pages`, as `like` but for the
  // frame.  The PMD's lock is held; the huge page's own mapping has been accounted for.
  void replace_huge_pmd(Task& task, Table& pmd, VirtAddr at, const std::vector<Pfn>& pages,
                        Pte like);

  // For the other files of mm/.
  [[nodiscard]] Kernel& kernel() const { return kernel_; }
  [[nodiscard]] Mm& mm() const { return mm_; }
  [[nodiscard]] PageTableTree& tree() { return tree_; }
  [[nodiscard]] const arch::Costs& costs() const { return costs_; }
  [[nodiscard]] const arch::Geometry& geometry() const { return geometry_; }
  [[nodiscard]] Range page_range(VirtAddr at) const {
    return aligned(at, geometry_.page_size());
  }
  [[nodiscard]] Range pmd_range(VirtAddr at) const {
    return aligned(at, geometry_.pmd_size());
  }

  // pmd_lockptr(): the page of the PMD table, or null for mm->page_table_lock.
  [[nodiscard]] TablePage* pmd_lock_page(const Table& pmd) const {
    return split_pmd_ptlock_ ? pmd.page : nullptr;
  }
  [[nodiscard]] SpinLock& spinlock_of(TablePage* page) {
    if (page != nullptr && page->lock != nullptr) [[likely]]
      return *page->lock;
    return first_use_of_lock(page);
  }
  // A leaf at the PMD level maps `at`.
  [[nodiscard]] bool maps_huge(VirtAddr at) const {
    const Table* pmd = tree_.find_pmd_table(at);
    return pmd != nullptr && tree_.get(*pmd, at).is_leaf();
  }
  [[nodiscard]] bool split_pmd_ptlock() const { return split_pmd_ptlock_; }

  // A page for one table, charged; null without memory.  POWER's fragments take
  // page_table_lock.
  [[nodiscard]] TablePage* alloc_table(Task& task, unsigned level);
  void free_table(Task& task, TablePage* page);
  // The table of `level` that maps `at`, made with all above it where missing; null: no
  // memory, or a huge page is in the way.
  [[nodiscard]] Table* alloc_tables_to(Task& task, VirtAddr at, unsigned level);

 private:
  SpinLock& first_use_of_lock(TablePage* page);
  friend class MmuGather;
  static Range aligned(VirtAddr at, std::uint64_t size) {
    const VirtAddr start{at.v & ~(size - 1)};
    return {start, start + size};
  }
  [[nodiscard]] PageView view_of(Pte entry, bool huge) const;
  void enter_khugepaged_list(Task& task);
  void enter_khugepaged_list_with(Task& task, const Vma& vma);
  void map_page_at_start(const Vma& vma, VirtAddr at, bool in_rss);
  [[nodiscard]] Table* install_table(Task& task, Table& parent, VirtAddr at);
  [[nodiscard]] TablePage* take_table_page(Task& task, unsigned level);
  void account_table_pages(std::uint64_t before);
  [[nodiscard]] VirtAddr walk_pmds(Task& task, Range range) const;
  void zap_pmd(MmuGather& tlb, Range range);
  void try_to_free_pte(MmuGather& tlb, VirtAddr at);
  enum class GuardStep : std::uint8_t { kSet, kInTheWay, kNoMemory };
  GuardStep guard_install_pte_range(Task& task, Range range);
  bool zap_huge_pmd(MmuGather& tlb, Table& pmd, Range range);
  void zap_pte_range(MmuGather& tlb, Range range);
  bool free_tables_below(MmuGather& tlb, Table& table, Range range, VirtAddr floor,
                         VirtAddr ceiling);
  void split_huge_pmd_locked(Task& task, Table& pmd, VirtAddr at);
  struct ProtChange;
  void change_pmd(ProtChange& change, Range range);
  void change_pte_range(ProtChange& change, Range range);
  bool madvise_free_huge_pmd(Task& task, Range range);
  bool madvise_free_pte_range(Task& task, Range range);
  enum class FreeStep : std::uint8_t { kCleaned, kDropped, kSkipped, kSplitFirst, kStop };
  FreeStep madvise_free_pte(Task& task, Table& table, std::uint64_t& i, std::uint64_t to);
  bool copy_upper_tables(Task& task, PageTables& child, Range range);
  bool copy_huge_pmd(Task& task, PageTables& child, Table& pmd, VirtAddr at);
  bool copy_pte_range(Task& task, PageTables& child, Range range, bool cow);
  void move_ptes(Task& task, VirtAddr old_at, VirtAddr new_at, std::uint64_t bytes);
  bool move_pmd_entry(Task& task, VirtAddr old_at, VirtAddr new_at);

  Kernel& kernel_;
  Mm& mm_;
  const arch::Geometry& geometry_;
  const arch::Costs& costs_;
  PageTableTree tree_;
  RssStat rss_;
  bool split_pmd_ptlock_;
  std::array<std::uint64_t, 2> needs_;  // bits that a read, a write needs to go through
  bool may_enter_khugepaged_;           // it runs, and this mm is not on its list
  bool holds_huge_zero_page_ = false;
  LockStats& pmd_ptl_stats_;
  LockStats& pte_ptl_stats_;
};

// Holds a page-table spinlock: of a table page, or mm->page_table_lock for null.  Giving it
// up lets others run, and a daemon that waits there may be unwound (Engine::stop), so the
// destructor may throw.
class Ptl {
 public:
  Ptl(Task& task, PageTables& pages, TablePage* page)
      : task_(task), pages_(pages), page_(page), lock_(&pages.spinlock_of(page)) {
    if (page_ != nullptr) ++page_->users;
    lock_->lock(task_);
  }
  ~Ptl() noexcept(false) {
    if (lock_ != nullptr) unlock();
  }
  Ptl(const Ptl&) = delete;
  Ptl& operator=(const Ptl&) = delete;
  void unlock() {
    lock_->unlock(task_);
    lock_ = nullptr;
    if (page_ != nullptr) pages_.tree().put_lock_user(page_);
  }

 private:
  Task& task_;
  PageTables& pages_;
  TablePage* page_;
  SpinLock* lock_;
};

}  // namespace faultline::kernel
