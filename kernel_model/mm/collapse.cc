// SPDX-License-Identifier: Apache-2.0
//
// The collapse itself.
#include "kernel_model/mm/collapse.h"

#include <algorithm>
#include <vector>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kScanPmd{"hpage_collapse_scan_pmd", true};
constexpr Centre kCollapseHugePage{"collapse_huge_page", true};
constexpr Centre kCollapseCopy{"__collapse_huge_page_copy", true};

// The one range being collapsed.
struct Collapse {
  Task& task;
  Mm& mm;
  const CollapseControl& control;
  Range range;

  [[nodiscard]] PageTables& pages() const { return mm.pages(); }
  [[nodiscard]] Kernel& kernel() const { return mm.kernel(); }
};

// What the entries of a table say.
struct Scan {
  std::uint64_t none_or_zero = 0, swap = 0, shared = 0, referenced = 0;
  bool writable = false;
  std::vector<std::uint64_t> pages_on_node;
};

bool exceeds(const CollapseControl& control, std::uint64_t count, std::uint64_t limit) {
  return control.is_khugepaged && count > limit;
}

// Before 5.8: only single pages that nobody else maps; before 4.1: only writable ones.
ScanResult check_old_rules(const Collapse& c, Pte entry) {
  const CollapseRule rule = c.kernel().config().collapse;
  if (rule == CollapseRule::k3_9 && !entry.has(Pte::kWrite)) return ScanResult::kPageRo;
  if (rule >= CollapseRule::k5_8) return ScanResult::kSucceed;
  if (compound_order(c.kernel(), compound_head(c.kernel(), entry.pfn())) > 0)
    return ScanResult::kPageCompound;
  return c.kernel().phys().page(entry.pfn()).refcount == 1 ? ScanResult::kSucceed
                                                           : ScanResult::kPageCount;
}

ScanResult scan_page(const Collapse& c, Pte entry, Scan& scan) {
  Kernel& kernel = c.kernel();
  if (!entry.maps_anon()) return ScanResult::kPageNull;
  if (entry.has(Pte::kWrite)) scan.writable = true;
  if (const ScanResult r = check_old_rules(c, entry); r != ScanResult::kSucceed) return r;
  const Pfn head = compound_head(kernel, entry.pfn());
  const std::int32_t mapcount = pte_mapcount(kernel, entry.pfn()) +
                                static_cast<std::int32_t>(compound_mapcount(kernel, head));
  if (mapcount > 1 && exceeds(c.control, ++scan.shared, c.control.max_ptes_shared)) {
    ++kernel.vmstat().thp_scan_exceed_share_pte;
    return ScanResult::kExceedSharedPte;
  }
  ++scan.pages_on_node[static_cast<std::size_t>(kernel.phys().node_of(head))];
  // is_refcount_suitable(): nobody holds it but its mappings.
  if (kernel.phys().page(head).refcount != total_mapcount(kernel, head))
    return ScanResult::kPageCount;
  if (entry.has(Pte::kYoung)) ++scan.referenced;
  return ScanResult::kSucceed;
}

ScanResult scan_entry(const Collapse& c, Pte entry, Scan& scan) {
  Vmstat& vmstat = c.kernel().vmstat();
  const bool zero = entry.present() && entry.zero_page();
  if (zero && c.kernel().config().collapse == CollapseRule::k3_9)
    return ScanResult::kPageRo;
  if (entry.none() || zero) {
    if (!exceeds(c.control, ++scan.none_or_zero, c.control.max_ptes_none))
      return ScanResult::kSucceed;
    ++vmstat.thp_scan_exceed_none_pte;
    return ScanResult::kExceedNonePte;
  }
  // A guard mark, or that of a purged page, looks like a swap entry until it is to be
  // swapped in.
  if (entry.has(Pte::kSwap) || entry.has(Pte::kGuard) || entry.has(Pte::kVrange)) {
    if (exceeds(c.control, ++scan.swap, c.control.max_ptes_swap)) {
      ++vmstat.thp_scan_exceed_swap_pte;
      return ScanResult::kExceedSwapPte;
    }
    return ScanResult::kSucceed;
  }
  return scan_page(c, entry, scan);
}

ScanResult scan_table(const Collapse& c, const Table& table, Scan& scan) {
  const std::uint64_t entries = c.pages().geometry().pages_per_pmd();
  scan.pages_on_node.assign(c.kernel().profile().nodes.size(), 0);
  Ptl lock(c.task, c.pages(), table.page);
  // pte_offset_map_lock(): the table may be gone (PT_RECLAIM).
  if (c.pages().tree().find_pte_table(c.range.start) != &table) return ScanResult::kPmdNull;
  ScanResult result = ScanResult::kSucceed;
  std::uint64_t looked_at = 0;
  while (looked_at < entries && result == ScanResult::kSucceed)
    result = scan_entry(c, table.entry[looked_at++], scan);
  c.task.charge(c.pages().costs().pmd_walk * static_cast<std::int64_t>(looked_at));
  if (result != ScanResult::kSucceed) return result;
  if (!scan.writable && c.kernel().config().collapse < CollapseRule::k6_18)
    return ScanResult::kPageRo;
  const bool lacks =
      scan.referenced == 0 || (scan.swap > 0 && scan.referenced < entries / 2);
  return c.control.is_khugepaged && lacks ? ScanResult::kLackReferencedPage
                                          : ScanResult::kSucceed;
}

// hpage_collapse_alloc_page(), on the node that holds most of the pages.
MaybePfn alloc_huge_page(const Collapse& c, const Scan& scan) {
  const auto& nodes = scan.pages_on_node;
  c.task.charge(c.pages().costs().huge_page_alloc);
  c.task.sync();
  AllocRequest request;
  request.order = c.pages().geometry().pmd_order();
  request.preferred_node =
      static_cast<int>(std::max_element(nodes.begin(), nodes.end()) - nodes.begin());
  request.reclaim = c.control.reclaim;
  const auto page = c.kernel().phys().alloc_pages(request, c.task.cpu());
  Vmstat& vmstat = c.kernel().vmstat();
  ++(page ? vmstat.thp_collapse_alloc : vmstat.thp_collapse_alloc_failed);
  return page;
}

// hugepage_vma_revalidate() and find_pmd_or_thp_or_none(), after every wait for mmap_lock.
ScanResult revalidate(const Collapse& c, Table*& table) {
  if (c.mm.exiting) return ScanResult::kAnyProcess;
  const Vma* vma = c.mm.vma_at(c.range.start);
  if (vma == nullptr) return ScanResult::kVmaNull;
  if (!vma->range().contains(c.range) || !collapse_allowed(c.mm, *vma) ||
      (c.control.is_khugepaged && !thp_allowed(c.kernel(), c.mm, *vma)))
    return ScanResult::kVmaCheck;
  if (c.pages().maps_huge(c.range.start)) return ScanResult::kPmdMapped;
  const PageTableTree& tree = c.pages().tree();
  if (tree.find_pmd_table(c.range.start) == nullptr) return ScanResult::kPmdNull;
  table = tree.find_pte_table(c.range.start);
  return table == nullptr ? ScanResult::kPmdNone : ScanResult::kSucceed;
}

// The old pages' entries leave the page table, which becomes the huge page's deposit.
std::vector<Pte> take_entries(const Collapse& c, Table& pmd, Table& table,
                              TablePage*& deposit) {
  PageTableTree& tree = c.pages().tree();
  const std::uint64_t entries = c.pages().geometry().pages_per_pmd();
  std::vector<Pte> old(table.entry, table.entry + entries);
  Ptl lock(c.task, c.pages(), c.pages().pmd_lock_page(pmd));
  flush_tlb_range(c.task, c.pages(), c.range);  // pmdp_collapse_flush()
  for (std::uint64_t i = 0; i < entries; ++i) tree.set_index(table, i, Pte{});
  deposit = tree.detach(table);
  c.mm.process().access_caches.forget();
  return old;
}

// __collapse_huge_page_copy(): missing pages are cleared, the others copied and freed.
std::int64_t copy_entries(const Collapse& c, const std::vector<Pte>& old, Pfn huge) {
  Scope scope(c.task, kCollapseCopy);
  Kernel& kernel = c.kernel();
  const std::uint64_t size = c.pages().geometry().page_size();
  std::uint64_t to_copy = 0;
  std::uint32_t i = 0;
  for (const Pte entry : old) {
    if (kernel.contents() != nullptr) {
      if (entry.maps_anon())
        kernel.contents()->copied(entry.pfn(), {huge.v + i}, 1);
      else
        kernel.contents()->cleared({huge.v + i}, 1);
    }
    to_copy += entry.maps_anon() ? 1 : 0;
    ++i;
  }
  const std::uint64_t missing = old.size() - to_copy;
  if (missing > 0) stream_clear(c.task, kernel, huge, missing * size);
  stream_copy(c.task, kernel, huge, to_copy * size);
  c.task.charge((c.pages().costs().pte_clear + c.pages().costs().page_free) *
                static_cast<std::int64_t>(to_copy));
  c.task.sync();
  for (const Pte entry : old) {
    if (!entry.maps_anon()) continue;
    page_remove_rmap_pte(kernel, entry.pfn());
    put_page(kernel, entry.pfn(), c.task.cpu());
  }
  return static_cast<std::int64_t>(missing);
}

void install(const Collapse& c, Table& pmd, Pfn huge, TablePage* deposit,
             std::int64_t added) {
  PageTables& pages = c.pages();
  const Vma& vma = *c.mm.vma_at(c.range.start);
  Ptl lock(c.task, pages, pages.pmd_lock_page(pmd));
  page_add_new_huge_rmap(c.kernel(), huge,
                         vma.linear_page_index(c.range.start, pages.geometry().page_shift));
  if ((vma.vm_flags & VM_LOCKED) != 0) mark_mlocked(c.kernel(), huge, true);
  pages.tree().deposit(pmd, c.range.start, deposit);
  std::uint64_t bits = Pte::kPresent | Pte::kUser | Pte::kDirty | Pte::kYoung;
  if ((vma.vm_flags & VM_WRITE) != 0) bits |= Pte::kWrite;
  pages.tree().set(pmd, c.range.start, Pte::leaf(huge, bits));
  pages.rss_stat().add(c.task, RssKind::kAnon, added);
  c.task.charge(pages.costs().pmd_set);
}

// The part under mmap_lock held for write.
ScanResult collapse_locked(const Collapse& c, Pfn huge) {
  Table* table = nullptr;
  if (const ScanResult result = revalidate(c, table); result != ScanResult::kSucceed)
    return result;
  c.mm.vma_start_write(c.task, *c.mm.vma_at(c.range.start));
  c.task.sync();
  Scan scan;  // __collapse_huge_page_isolate()
  if (const ScanResult result = scan_table(c, *table, scan); result != ScanResult::kSucceed)
    return result;
  if (scan.swap > 0) return ScanResult::kFail;  // SCAN_PTE_NON_PRESENT
  Table& pmd = *table->parent;
  TablePage* deposit = nullptr;
  const std::vector<Pte> old = take_entries(c, pmd, *table, deposit);
  install(c, pmd, huge, deposit, copy_entries(c, old, huge));
  return ScanResult::kSucceed;
}

// collapse_huge_page(): gives mmap_lock up.
ScanResult collapse_huge_page(const Collapse& c, const Scan& scan) {
  Scope scope(c.task, kCollapseHugePage);
  c.mm.mmap_read_unlock(c.task);
  const auto huge = alloc_huge_page(c, scan);
  if (!huge) return ScanResult::kAllocHugePageFail;
  c.mm.mmap_read_lock(c.task);
  Table* table = nullptr;
  ScanResult result = revalidate(c, table);
  bool locked = true;
  if (result == ScanResult::kSucceed && scan.swap > 0)
    result = collapse_swapin(c.task, c.mm, c.range, locked);
  if (locked) c.mm.mmap_read_unlock(c.task);
  if (result == ScanResult::kSucceed) {
    c.mm.mmap_write_lock(c.task);
    result = collapse_locked(c, *huge);
    c.mm.mmap_write_unlock(c.task);
  }
  if (result == ScanResult::kSucceed) return result;
  c.task.charge(c.pages().costs().huge_page_free);
  c.task.sync();
  c.kernel().phys().free_pages(*huge, c.pages().geometry().pmd_order(), c.task.cpu());
  return result;
}

Errno collapse_errno(ScanResult result) {
  switch (result) {
    case ScanResult::kAllocHugePageFail:
      return Errno::kENOMEM;
    case ScanResult::kPageCount:
    case ScanResult::kPageLru:
    case ScanResult::kPageLock:
      return Errno::kEAGAIN;
    default:
      return Errno::kEINVAL;
  }
}

// MADV_COLLAPSE goes on to the next range after these.
bool may_go_on(ScanResult result) {
  switch (result) {
    case ScanResult::kPmdNull:
    case ScanResult::kPageRo:
    case ScanResult::kLackReferencedPage:
    case ScanResult::kPageNull:
    case ScanResult::kPageCount:
    case ScanResult::kPageLru:
    case ScanResult::kPageLock:
    case ScanResult::kPageCompound:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool collapse_allowed(const Mm& mm, const Vma& vma) {
  const PageTables& pages = const_cast<Mm&>(mm).pages();
  if (!pages.geometry().has_thp || !vma.anonymous || !vma.anon_vma) return false;
  if (mm.thp_disabled && !mm.thp_except_advised) return false;
  if ((vma.vm_flags & (VM_NOHUGEPAGE | VM_HUGETLB | VM_SHARED | kVmSpecial)) != 0)
    return false;
  const std::uint64_t size = pages.geometry().pmd_size();
  const VirtAddr first{(vma.start.v + size - 1) & ~(size - 1)};
  return first + size <= vma.end;
}

ScanResult collapse_scan_pmd(Task& task, Mm& mm, VirtAddr at,
                             const CollapseControl& control, bool& locked) {
  Scope scope(task, kScanPmd);
  const Collapse c{task, mm, control, mm.pages().pmd_range(at)};
  task.sync();
  Table* table = nullptr;
  Scan scan;
  ScanResult result = revalidate(c, table);
  if (result == ScanResult::kSucceed) result = scan_table(c, *table, scan);
  if (result != ScanResult::kSucceed) return result;
  locked = false;
  return collapse_huge_page(c, scan);
}

Errno madvise_collapse(Task& task, Mm& mm, Vma& vma, Range range) {
  if (!collapse_allowed(mm, vma)) return Errno::kEINVAL;
  mm.kernel().mm_shared().lru.lru_add_drain_all();
  const std::uint64_t size = mm.pages().geometry().pmd_size();
  const VirtAddr start{(range.start.v + size - 1) & ~(size - 1)};
  const VirtAddr end{range.end.v & ~(size - 1)};
  const CollapseControl control{.is_khugepaged = false};
  // The kernel's answer where no range was tried and none should have been: a range that
  // lies inside one huge page ends before it starts, and then nothing equals its number.
  ScanResult last_fail = start <= end ? ScanResult::kSucceed : ScanResult::kFail;
  bool locked = true;
  for (VirtAddr at = start; at < end; at = at + size) {
    if (!locked) mm.mmap_read_lock(task);
    locked = true;
    const ScanResult result = collapse_scan_pmd(task, mm, at, control, locked);
    if (result == ScanResult::kSucceed || result == ScanResult::kPmdMapped) continue;
    last_fail = result;
    if (!may_go_on(result)) break;
  }
  if (!locked) mm.mmap_read_lock(task);
  return last_fail == ScanResult::kSucceed ? Errno::kOk : collapse_errno(last_fail);
}

}  // namespace faultline::kernel
