// SPDX-License-Identifier: Apache-2.0
//
// Which lock protects which table, tables made on the way down, and views that cost
// nothing.
#include "kernel_model/mm/page_tables.h"

#include <algorithm>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/collapse.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kPteAlloc{"__pte_alloc", true};
constexpr Centre kPmdAlloc{"__pmd_alloc", true};
constexpr Centre kPudAlloc{"__pud_alloc", true};

// CONFIG_ARCH_ENABLE_SPLIT_PMD_PTLOCK of this machine's kernel.  A PMD table that is the
// PGD itself is never split (arm64: only with PGTABLE_LEVELS > 2).
bool splits_pmd_ptlock(const Kernel& kernel) {
  const arch::Profile& profile = kernel.profile();
  if (profile.geometry.levels.size() <= 2) return false;
  switch (kernel.config().split_pmd_ptlock) {
    case SplitPtlock::kYes:
      return true;
    case SplitPtlock::kNo:
      return false;
    case SplitPtlock::kByArch:
      break;
  }
  const std::string& since = profile.split_pmd_ptlock_since;
  return !since.empty() && kernel.version() >= KernelConfig::kernel_version(since);
}

// Bits that an access sets, or (without hardware for it) needs to find set.
std::uint64_t accessed_bits(Access access) {
  return access == Access::kWrite ? Pte::kYoung | Pte::kDirty : Pte::kYoung;
}

std::uint64_t needed_bits(const Kernel& kernel, Access access) {
  const std::uint64_t rights = Pte::rights(access);
  return kernel.profile().hardware_access_dirty ? rights : rights | accessed_bits(access);
}

const Centre& alloc_centre(const PageTableTree& tree, unsigned level) {
  if (level == tree.pte_level()) return kPteAlloc;
  return level == tree.pmd_level() ? kPmdAlloc : kPudAlloc;
}

}  // namespace

PageTables::PageTables(Kernel& kernel, Mm& mm)
    : kernel_(kernel),
      mm_(mm),
      geometry_(kernel.profile().geometry),
      costs_(kernel.profile().costs),
      tree_(geometry_, kernel.phys()),
      rss_(mm, kernel.config().rss_stat, kernel.profile().cpus),
      split_pmd_ptlock_(splits_pmd_ptlock(kernel)),
      needs_{needed_bits(kernel, Access::kRead), needed_bits(kernel, Access::kWrite)},
      may_enter_khugepaged_(Khugepaged::runs(kernel)),
      pmd_ptl_stats_(kernel.engine().locks().of("pmd_ptl")),
      pte_ptl_stats_(kernel.engine().locks().of("pte_ptl")) {}

PageTables::~PageTables() {
  if (holds_huge_zero_page_) kernel_.mm_shared().put_huge_zero_page();
}

void PageTables::enter_khugepaged_list(Task& task) {
  may_enter_khugepaged_ = false;
  kernel_.mm_shared().khugepaged.enter(task, mm_);
}

void PageTables::enter_khugepaged_list_with(Task& task, const Vma& vma) {
  if (collapse_allowed(mm_, vma) && thp_allowed(kernel_, mm_, vma))
    enter_khugepaged_list(task);
}

void PageTables::note_huge_zero_page() {
  if (!holds_huge_zero_page_) kernel_.mm_shared().hold_huge_zero_page();
  holds_huge_zero_page_ = true;
}

SpinLock& PageTables::first_use_of_lock(TablePage* page) {
  if (page == nullptr) return mm_.page_table_lock();
  LockStats& stats = page->level == tree_.pte_level() ? pte_ptl_stats_ : pmd_ptl_stats_;
  page->lock = std::make_unique<SpinLock>(kernel_.engine(), stats, kernel_.lock_costs());
  return *page->lock;
}

bool PageTables::hw_access(VirtAddr at, Access access, bool* assisted) {
  const std::uint64_t bits = accessed_bits(access);
  Table* table = tree_.find_pte_table(at);
  if (table == nullptr) {
    table = tree_.find_pmd_table(at);
    if (table == nullptr) return false;
  }
  Pte& entry = table->entry[tree_.shape(table->level).index(at)];
  if (!entry.is_leaf() || !entry.has_all(needs_[static_cast<std::size_t>(access)]))
    return false;
  if (assisted != nullptr) *assisted = !entry.has_all(bits);
  entry = entry.with(bits);
  return true;
}

PageView PageTables::view_of(Pte entry, bool huge) const {
  PageView view;
  if (entry.none()) return view;
  if (entry.has(Pte::kHugetlb))
    view.kind = PageView::kHugetlb;
  else if (entry.has(Pte::kGuard))
    view.kind = PageView::kGuard;
  else if (entry.has(Pte::kVrange))
    view.kind = PageView::kPurged;
  else if (entry.has(Pte::kSwap))
    view.kind = PageView::kSwap;
  else if (entry.zero_page())
    view.kind = huge ? PageView::kHugeZero : PageView::kZero;
  else
    view.kind = huge ? PageView::kHuge : PageView::kBase;
  view.pfn = entry.pfn();
  view.writable = entry.has(Pte::kWrite);
  view.dirty = entry.has(Pte::kDirty);
  view.young = entry.has(Pte::kYoung);
  view.file = entry.has(Pte::kFile);
  if (!entry.maps_anon()) return view;
  view.dirty = view.dirty || page_dirty(kernel_, entry.pfn());
  view.lazyfree = is_lazyfree(kernel_, entry.pfn()) && !view.dirty;
  return view;
}

PageView PageTables::look(VirtAddr at) const {
  const Table* pmd = tree_.find_pmd_table(at);
  if (pmd == nullptr) return {};
  const Pte entry = tree_.get(*pmd, at);
  if (!entry.is_table()) return view_of(entry, true);
  return view_of(tree_.get(*PageTableTree::to_table(entry), at), false);
}

void PageTables::for_each_present(
    Range range, const std::function<void(Range, const PageView&)>& f) const {
  const LevelShape& pte = tree_.shape(tree_.pte_level());
  VirtAddr at = range.start;
  while ((at = tree_.next_in_use(at, range.end, tree_.pmd_level())) < range.end) {
    const Range pmd = pmd_range(at);
    const Pte entry = tree_.get(*tree_.find_pmd_table(at), at);
    if (entry.is_leaf()) {
      f(pmd, view_of(entry, true));
      at = pmd.end;
      continue;
    }
    const Table& table = *PageTableTree::to_table(entry);
    const std::uint64_t to = (std::min(range.end, pmd.end) - pmd.start) >> pte.shift;
    for (std::uint64_t i =
             PageTableTree::next_index(table, (at - pmd.start) >> pte.shift, to);
         i < to; i = PageTableTree::next_index(table, i, to)) {
      const PageView view = view_of(table.entry[i], false);
      const std::uint64_t first = i;
      for (++i; i < to && !table.entry[i].none(); ++i) {
        PageView next = view_of(table.entry[i], false);
        next.pfn = view.pfn;
        if (next != view) break;
      }
      f({pmd.start + (first << pte.shift), pmd.start + (i << pte.shift)}, view);
    }
    at = pmd.end;
  }
}

// Model: a page that several VMAs have locked is evictable after the first munlock (no
// mlock_count); pieces of a split huge page are left alone, as from 5.18.
void PageTables::mlock_pages(Range range, bool locked) {
  for_each_present(range, [&](Range run, const PageView& view) {
    if (view.kind == PageView::kHuge) {
      mark_mlocked(kernel_, view.pfn, locked);
      return;
    }
    if (view.kind != PageView::kBase || view.file) return;
    for (VirtAddr at = run.start; at < run.end; at = at + geometry_.page_size()) {
      const Pfn pfn = tree_.leaf_at(at).pfn();
      if (compound_order(kernel_, compound_head(kernel_, pfn)) == 0)
        mark_mlocked(kernel_, pfn, locked);
    }
  });
}

void PageTables::account_table_pages(std::uint64_t before) {
  kernel_.vmstat().nr_page_table_pages +=
      static_cast<std::int64_t>(tree_.table_pages()) - static_cast<std::int64_t>(before);
}

// pte_alloc_one() and its sisters.  The table is cleared; on POWER (and s390) the mm's next
// fragment is taken under page_table_lock (get_pte_from_cache()).
TablePage* PageTables::alloc_table(Task& task, unsigned level) {
  task.charge(costs_.table_alloc + clear_time(costs_, tree_.shape(level).table_bytes));
  if (tree_.shape(level).tables_per_page > 1) {
    Ptl lock(task, *this, nullptr);
    return take_table_page(task, level);
  }
  task.sync();
  return take_table_page(task, level);
}

TablePage* PageTables::take_table_page(Task& task, unsigned level) {
  const std::uint64_t before = tree_.table_pages();
  TablePage* page = tree_.alloc_table_page(level, task.node(), task.cpu());
  account_table_pages(before);
  return page;
}

void PageTables::free_table(Task& task, TablePage* page) {
  task.charge(costs_.table_free);
  task.sync();
  const std::uint64_t before = tree_.table_pages();
  tree_.put_table_page(page, task.cpu());
  account_table_pages(before);
}

// __pte_alloc(), __pmd_alloc(), __pud_alloc() (mm/memory.c): the page first, then the lock,
// then look again.
Table* PageTables::install_table(Task& task, Table& parent, VirtAddr at) {
  const unsigned level = parent.level + 1U;
  Scope scope(task, alloc_centre(tree_, level));
  TablePage* page = alloc_table(task, level);
  if (page == nullptr) return nullptr;
  Ptl lock(task, *this, level == tree_.pte_level() ? pmd_lock_page(parent) : nullptr);
  const Pte now = tree_.get(parent, at);
  if (now.none()) return &tree_.install(parent, at, page);
  lock.unlock();
  free_table(task, page);
  return now.is_table() ? PageTableTree::to_table(now) : nullptr;
}

Table* PageTables::alloc_tables_to(Task& task, VirtAddr at, unsigned level) {
  Table* table = &tree_.top();
  while (table != nullptr && table->level < level) {
    const Pte entry = tree_.get(*table, at);
    if (entry.is_leaf()) return nullptr;
    table =
        entry.is_table() ? PageTableTree::to_table(entry) : install_table(task, *table, at);
  }
  return table;
}

void PageTables::map_at_start(Vma& vma, Range range, bool in_rss) {
  const bool anon_pages = vma.anonymous || (vma.vm_flags & VM_WRITE) != 0;
  if (anon_pages && (vma.vm_flags & VM_PFNMAP) == 0 && !vma.anon_vma) {
    vma.anon_vma = kernel_.mm_shared().new_anon_vma();
    vma.anon_vma_chain = 1;
  }
  const std::uint64_t before = tree_.table_pages();
  for (VirtAddr at = range.start; at < range.end; at = at + geometry_.page_size())
    map_page_at_start(vma, at, in_rss);
  account_table_pages(before);
}

void PageTables::map_page_at_start(const Vma& vma, VirtAddr at, bool in_rss) {
  Table* table = &tree_.top();
  while (table->level < tree_.pte_level()) {
    const Pte entry = tree_.get(*table, at);
    if (entry.is_table()) {
      table = PageTableTree::to_table(entry);
      continue;
    }
    TablePage* page = tree_.alloc_table_page(table->level + 1U, 0, 0);
    FAULTLINE_CHECK(page != nullptr);
    table = &tree_.install(*table, at, page);
  }
  if (!tree_.get(*table, at).none()) return;
  std::uint64_t bits = Pte::kPresent | Pte::kUser | Pte::kYoung;
  Pfn pfn{0};
  if ((vma.vm_flags & VM_PFNMAP) != 0) {
    bits |= Pte::kZero;  // vdso, vvar: no page of the process's
  } else if (vma.anonymous || (vma.vm_flags & VM_WRITE) != 0) {
    const auto page = kernel_.phys().alloc_pages({}, 0);
    FAULTLINE_CHECK(page.has_value());
    pfn = *page;
    page_add_new_anon_rmap(kernel_, pfn);
    bits |= Pte::kDirty;
    if ((vma.vm_flags & VM_WRITE) != 0) bits |= Pte::kWrite;
    rss_.set_up(RssKind::kAnon, 1, in_rss ? 0 : 1);
  } else {
    bits |= Pte::kFile;
    rss_.set_up(RssKind::kFile, 1, in_rss ? 0 : 1);
  }
  tree_.set(*table, at, Pte::leaf(pfn, bits));
}

}  // namespace faultline::kernel
