// SPDX-License-Identifier: Apache-2.0
//
// Many ordinary faults in one step.
//
// A program that writes to a range of fresh pages faults for each of them, and most of
// these faults meet nobody.  Then their work, their times and their books are those of one
// fault so many times over, and doing them together spares the host the hand-over to other
// tasks between any two of them.
//
// Stands for: do_user_page_fault() … do_anonymous_page(), as anon_fault.cc does it.  Model:
// other tasks see pages and counters change up to kMostPages faults early.
#include <algorithm>
#include <array>

#include "kernel_model/mm/anon_index.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/data_caches.h"
#include "kernel_model/mm/fault.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mthp.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr std::uint64_t kMostPages = 32;

// Empty entries from index `first` on, `most` at most.
std::uint64_t empty_entries(const Table& table, std::uint64_t first, std::uint64_t most) {
  std::uint64_t n = 0;
  while (n < most && table.entry[first + n].none()) ++n;
  return n;
}

class FaultRun {
 public:
  FaultRun(Task& task, Mm& mm, Vma& vma, Table& table)
      : task_(task),
        mm_(mm),
        kernel_(mm.kernel()),
        pages_(mm.pages()),
        vma_(vma),
        table_(table) {}

  // Maps up to `count` pages from `at`, which the entry `index` maps, on; answers how many.
  // Where less than the low watermark would be left, a fault of its own wakes kswapd.
  std::uint64_t map(VirtAddr at, std::uint64_t index, std::uint64_t count);
  void charge(std::uint64_t faults, SpinLock& ptl);

 private:
  Duration pay_for_clearing(std::int64_t pages);

  Task& task_;
  Mm& mm_;
  Kernel& kernel_;
  PageTables& pages_;
  Vma& vma_;
  Table& table_;
  DataCaches::Bill cleared_;
};

std::uint64_t FaultRun::map(VirtAddr at, std::uint64_t index, std::uint64_t count) {
  std::array<Pfn, kMostPages> pages;
  const std::uint32_t done =
      kernel_.phys().try_alloc_pages(task_.node(), task_.cpu(), PhysMem::Mark::kLow,
                                     pages.data(), static_cast<std::uint32_t>(count));
  if (kernel_.contents() != nullptr)
    for (std::uint32_t i = 0; i < done; ++i) kernel_.contents()->cleared(pages[i], 1);
  if (DataCaches* const caches = kernel_.data_caches())
    caches->clear_pages(task_, pages.data(), done, cleared_);
  constexpr std::uint64_t kBits =
      Pte::kPresent | Pte::kUser | Pte::kYoung | Pte::kDirty | Pte::kWrite;
  PageTableTree::set_run(table_, index, pages.data(), done, kBits);
  page_add_new_anon_rmaps(kernel_, pages.data(), done);
  if (kernel_.mm_shared().lrus.lists_kept())
    for (std::uint32_t i = 0; i < done; ++i)
      note_anon_index(kernel_, pages[i], vma_, at + i * pages_.geometry().page_size());
  pages_.rss_stat().fault_run(task_, RssKind::kAnon, done);
  return done;
}

// Answers what one page took on average.
Duration FaultRun::pay_for_clearing(std::int64_t pages) {
  const Centre& centre = kernel_.centres().clear_page;
  DataCaches* const caches = kernel_.data_caches();
  if (caches == nullptr) {
    const Duration each = clear_time(pages_.costs(), pages_.geometry().page_size());
    task_.charge(centre, each * pages);
    return each;
  }
  const Scope scope(task_, centre);
  const Time start = task_.now();
  caches->pay(task_, cleared_, kernel_.profile().costs.clear_rate);
  return (task_.now() - start) / pages;
}

// The times of one fault, at the places where a fault takes them.
void FaultRun::charge(std::uint64_t faults, SpinLock& ptl) {
  const arch::Costs& costs = pages_.costs();
  const auto n = static_cast<std::int64_t>(faults);
  Duration clear;
  const Duration ptl_hold = costs.lock_atomic * 2 + costs.pte_set;
  PageLocks& locks = kernel_.mm_shared().page_locks;
  const MmShared::FaultPath path = kernel_.mm_shared().fault_path(task_);
  CentreTree::Node* const from = task_.where();
  task_.stand_at(path.entry);
  task_.charge(costs.fault_entry_exit * n);
  task_.stand_at(path.do_page_fault);
  task_.charge((costs.lock_atomic * 2 + costs.vma_lookup) * n);
  {
    const Scope fault(task_, kHandleMmFault);
    const Scope inner(task_, kHandleMmFaultInner);
    const Scope anonymous(task_, kDoAnonymousPage);
    task_.charge((locks.page_alloc() + ptl_hold) * n);
    // Others may come while memory is awaited, and take the lock's page away.
    ptl.count_holders(faults, ptl_hold);
    clear = pay_for_clearing(n);
    locks.added(task_, static_cast<unsigned>(faults));
    locks.settle(task_);
  }
  task_.stand_at(from);
  mm_.mmap_lock().count_readers(faults, costs.lock_atomic * 2 + costs.vma_lookup +
                                            costs.page_alloc + ptl_hold + clear);
  kernel_.vmstat().pgfault += faults;
  mm_.process().minflt += faults;
}

bool is_simple(const Kernel& kernel, const Mm& mm, const Vma& vma) {
  constexpr std::uint64_t kNeeds = VM_WRITE;
  return vma.anonymous && !vma.hugetlb && vma.anon_vma &&
         (vma.vm_flags & (kNeeds | VM_LOCKED)) == kNeeds &&
         mthp_orders(kernel, mm, vma) == 0;
}

}  // namespace

std::uint64_t anon_fault_run(Task& task, Process& process, VirtAddr at, VirtAddr end) {
  Mm& mm = process.mm();
  Kernel& kernel = mm.kernel();
  PageTables& pages = mm.pages();
  if (kernel.shadow_mmu() != nullptr || mm.has_vma_locks() || process.oom_killed ||
      !mm.mmap_lock().readers_may_enter())
    return 0;
  Table* const table = pages.tree().find_pte_table(at);
  if (table == nullptr) return 0;
  Vma* const vma = mm.vma_at(at);
  if (vma == nullptr || !is_simple(kernel, mm, *vma)) return 0;
  SpinLock& ptl = pages.spinlock_of(table->page);
  if (ptl.is_locked() || kernel.config().memcg_max != 0) return 0;
  const LevelShape& shape = pages.tree().shape(table->level);
  const std::uint64_t first = shape.index(at);
  // The page that fills the batch for the LRU is the last: who it meets there must be seen.
  const PageLocks& locks = kernel.mm_shared().page_locks;
  const std::uint64_t batch = locks.on() ? locks.room(task.cpu()) : kMostPages;
  const std::uint64_t most = std::min({(std::min(end, vma->end) - at) >> shape.shift,
                                       shape.entries() - first, batch, kMostPages});
  FaultRun run(task, mm, *vma, *table);
  const std::uint64_t done = run.map(at, first, empty_entries(*table, first, most));
  if (done != 0) run.charge(done, ptl);
  return done;
}

}  // namespace faultline::kernel
