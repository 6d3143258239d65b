// SPDX-License-Identifier: Apache-2.0
//
// Invariants of the page side: see invariants.h.  Page tables, struct pages and counters
// say the same.
#include <bit>
#include <map>

#include "kernel_model/mm/invariants.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {

namespace {

// What all page tables together say of the frames that they map.
struct Mappings {
  std::map<Pfn, std::int32_t> pte, pmd;  // mappings of a base page or piece, of a huge page
  std::map<Pfn, std::int32_t> references;  // of a page or compound head
  std::uint64_t table_pages = 0;
};

struct Walk {
  PageTables& pages;
  PageTableTree& tree;
  Kernel& kernel;
  Mappings& all;
  std::uint64_t anon = 0, file = 0, shmem = 0, huge_pages = 0, bytes = 0;

  void note_leaf(Pte entry, bool huge) {
    if (entry.maps_file()) {
      ++all.pte[entry.pfn()];
      ++all.references[entry.pfn()];
      ++(is_shmem_page(kernel, entry.pfn()) ? shmem : file);
      return;
    }
    if (entry.has(Pte::kFile)) ++file;
    if (!entry.maps_anon()) return;
    huge_pages += huge ? 1 : 0;
    anon += huge ? pages.geometry().pages_per_pmd() : 1;
    ++(huge ? all.pmd : all.pte)[entry.pfn()];
    ++all.references[compound_head(kernel, entry.pfn())];
  }

  void table(Table& t) {
    const std::uint64_t entries = tree.shape(t.level).entries();
    std::uint64_t used = 0;
    for (std::uint64_t i = PageTableTree::next_index(t, 0, entries); i < entries;
         i = PageTableTree::next_index(t, i + 1, entries)) {
      ++used;
      FAULTLINE_CHECK(!t.entry[i].none());
      entry(t, i);
    }
    FAULTLINE_CHECK_EQ(std::uint64_t{t.used}, used);
  }

  void entry(Table& t, std::uint64_t i) {
    const Pte value = t.entry[i];
    const bool pmd_leaf = value.is_leaf() && t.level == tree.pmd_level();
    FAULTLINE_CHECK(value.is_table() || pmd_leaf || t.level == tree.pte_level());
    // A huge page keeps a table for its split, nobody else does.
    if (t.deposit != nullptr)
      FAULTLINE_CHECK_EQ(t.deposit[i] != nullptr, pmd_leaf && !value.has(Pte::kHugetlb));
    if (pmd_leaf && !value.has(Pte::kHugetlb))
      bytes += tree.shape(tree.pte_level()).counted_bytes();
    if (value.is_leaf()) {
      const VirtAddr at = t.start + (i << tree.shape(t.level).shift);
      const Vma* vma = pages.mm().vma_at(at);
      FAULTLINE_CHECK(vma != nullptr);  // no page outlives its mapping
      // Never a huge page that its VMA doesn't cover.
      if (pmd_leaf) FAULTLINE_CHECK(vma->range().contains(pages.pmd_range(at)));
      if (value.has(Pte::kWrite)) FAULTLINE_CHECK((vma->vm_flags & VM_WRITE) != 0);
      note_leaf(value, pmd_leaf);
      return;
    }
    Table& child = *PageTableTree::to_table(value);
    FAULTLINE_CHECK(child.parent == &t);
    FAULTLINE_CHECK(child.start == t.start + (i << tree.shape(t.level).shift));
    bytes += tree.shape(child.level).counted_bytes();
    table(child);
  }
};

void check_mm(Mm& mm, Mappings& all) {
  PageTables& pages = mm.pages();
  Walk walk{pages, pages.tree(), mm.kernel(), all};
  walk.table(pages.tree().top());
  FAULTLINE_CHECK_EQ(mm.rss_anon, walk.anon);
  FAULTLINE_CHECK_EQ(mm.rss_file, walk.file);
  FAULTLINE_CHECK_EQ(mm.rss_shmem, walk.shmem);
  FAULTLINE_CHECK_LE(mm.rss(), mm.hiwater_rss);
  FAULTLINE_CHECK_EQ(pages.pgtables_bytes(), walk.bytes);
  // What smaps says of all mappings is what the walk found.
  const std::uint64_t page = pages.geometry().page_size();
  const MemSizeStats smaps = smaps_rollup(mm);
  FAULTLINE_CHECK_EQ(smaps.rss, (walk.anon + walk.file + walk.shmem) * page);
  FAULTLINE_CHECK_EQ(smaps.anonymous, walk.anon * page);
  FAULTLINE_CHECK_EQ(smaps.anonymous_thp, walk.huge_pages * pages.geometry().pmd_size());
  FAULTLINE_CHECK_LE(smaps.anonymous_thp, smaps.anonymous);
  all.table_pages += pages.tree().table_pages();
}

// Each frame counts the mappings and references that the tables hold.
void check_frames(Kernel& kernel, const Mappings& all) {
  PhysMem& phys = kernel.phys();
  for (const auto& [pfn, mappings] : all.pte)
    FAULTLINE_CHECK_EQ(pte_mapcount(kernel, pfn), mappings);
  for (const auto& [head, mappings] : all.pmd)
    FAULTLINE_CHECK_EQ(static_cast<std::int32_t>(compound_mapcount(kernel, head)),
                       mappings);
  for (const auto& [head, references] : all.references)
    FAULTLINE_CHECK_GE(phys.page(head).refcount, references);
}

}  // namespace

void check_page_invariants(Kernel& kernel) {
  Mappings all;
  for (const auto& process : kernel.processes()) check_mm(process->mm(), all);
  check_frames(kernel, all);
  kernel.mm_shared().lrus.check();

  const Vmstat& vmstat = kernel.vmstat();
  const auto thps = static_cast<std::int64_t>(all.pmd.size());
  FAULTLINE_CHECK_EQ(vmstat.nr_anon_transparent_hugepages, thps);
  FAULTLINE_CHECK_EQ(vmstat.nr_page_table_pages,
                     static_cast<std::int64_t>(all.table_pages));
  // Each huge page was made by a fault or a collapse; one that was split is none any more.
  FAULTLINE_CHECK_LE(static_cast<std::uint64_t>(thps) + vmstat.thp_split_page,
                     vmstat.thp_fault_alloc + vmstat.thp_collapse_alloc);

  for (const auto& [id, cached_file] : kernel.mm_shared().files.all())
    for (const auto& [index, pfn] : cached_file->cached())
      all.references.try_emplace(pfn, 0);

  // Physical use is no less than what is mapped: whole compound pages, tables, the huge
  // zero page.
  std::uint64_t held = all.table_pages;
  for (const auto& [head, references] : all.references)
    held += std::uint64_t{1} << compound_order(kernel, head);
  if (kernel.mm_shared().huge_zero_page())
    held += kernel.profile().geometry.pages_per_pmd();
  FAULTLINE_CHECK_LE(held + kernel.phys().free_pages_total(), kernel.phys().total_pages());
}

}  // namespace faultline::kernel
