// SPDX-License-Identifier: Apache-2.0
//
// Splitting a PMD-mapped huge page into base-page entries.  No memory is freed by that, and
// the compound page stays whole: only its mapping changes.
//
// Stands for: __split_huge_pmd(), vma_adjust_trans_huge() (mm/huge_memory.c, v4.15-6.18).
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kSplitHugePmd{"__split_huge_pmd", true};

}  // namespace

void PageTables::split_huge_pmd(Task& task, VirtAddr at) {
  Table* pmd = tree_.find_pmd_table(at);
  if (pmd == nullptr || !tree_.get(*pmd, at).is_leaf()) return;
  Ptl lock(task, *this, pmd_lock_page(*pmd));
  if (tree_.get(*pmd, at).is_leaf()) split_huge_pmd_locked(task, *pmd, at);
}

// __split_huge_pmd_locked().  All under the PMD's lock: the TLB flush of the huge entry,
// one entry and one map count for each base page.  The huge zero page becomes as many
// zero-page entries.
void PageTables::split_huge_pmd_locked(Task& task, Table& pmd, VirtAddr at) {
  Scope scope(task, kSplitHugePmd);
  const Pte huge = tree_.get(pmd, at);
  ++kernel_.vmstat().thp_split_pmd;
  flush_tlb_range(task, *this, pmd_range(at), geometry_.pmd_size());
  TablePage* page = tree_.withdraw(pmd, at);
  tree_.set(pmd, at, Pte{});
  Table& table = tree_.install(pmd, at, page);
  const std::uint64_t pages = geometry_.pages_per_pmd();
  // The dirty bit goes to the page (to 6.0, and from 6.1 on again: commit 624a2c94f5b7).
  const Pte base = huge.without(Pte::kDirty);
  tree_.fill(
      table, base,
      huge.zero_page() ? PageTableTree::Fill::kSame : PageTableTree::Fill::kSubpages);
  if (huge.maps_anon()) page_split_pmd_rmap(kernel_, huge.pfn(), huge.has(Pte::kDirty));
  task.charge(costs_.pmd_set + costs_.pmd_split_pte * static_cast<std::int64_t>(pages));
}

void PageTables::replace_huge_pmd(Task& task, Table& pmd, VirtAddr at,
                                  const std::vector<Pfn>& pages, Pte like) {
  TablePage* page = tree_.withdraw(pmd, at);
  tree_.set(pmd, at, Pte{});
  Table& table = tree_.install(pmd, at, page);
  std::uint64_t i = 0;
  for (const Pfn pfn : pages) {
    page_add_new_anon_rmap(kernel_, pfn);
    tree_.set_index(table, i++, like.with_pfn(pfn));
  }
  rss_.add(task, RssKind::kAnon, static_cast<std::int64_t>(pages.size()));
  task.charge(costs_.pmd_set + costs_.pte_set * static_cast<std::int64_t>(pages.size()));
}

void PageTables::map_zero_page_instead(Task& task, VirtAddr at) {
  Table& table = *tree_.find_pte_table(at);
  const Pte old = tree_.get(table, at);
  drop_piece(kernel_, old.pfn());
  const std::uint64_t readable = old.raw() & Pte::kUser;
  tree_.set(table, at,
            Pte::leaf(Pfn{0}, Pte::kPresent | Pte::kYoung | Pte::kZero | readable));
  rss_.add(task, RssKind::kAnon, -1);
}

void PageTables::vma_adjust_trans_huge(Task& task, Vma& vma, VirtAddr at) {
  const Range huge = pmd_range(at);
  if (at == huge.start || !vma.range().contains(huge)) return;
  split_huge_pmd(task, at);
}

}  // namespace faultline::kernel
