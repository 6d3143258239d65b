// SPDX-License-Identifier: Apache-2.0
//
// Faults that map or write one base page.
//
// Stands for: handle_pte_fault(), do_anonymous_page(), do_wp_page(), wp_page_copy()
// (mm/memory.c, v4.15-6.18).
#include "kernel_model/mm/anon_index.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/folio.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/mthp.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/swap.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDoWpPage{"do_wp_page", true};

// alloc_zeroed_user_highpage_movable(), alloc_page_vma(): a base page of the task's node,
// or another's.
MaybePfn alloc_base_page(Fault& fault) {
  PageLocks& locks = fault.kernel.mm_shared().page_locks;
  fault.task.charge(locks.page_alloc());
  fault.task.sync();
  AllocRequest request;
  request.preferred_node = fault.task.node();
  const MaybePfn page = fault.kernel.phys().alloc_pages(request, fault.task.cpu());
  locks.settle(fault.task);
  return page;
}

void free_unmapped(Fault& fault, Pfn page, unsigned order = 0) {
  fault.task.charge(fault.pages.costs().page_free);
  fault.task.sync();
  fault.kernel.phys().free_pages(page, order, fault.task.cpu());
}

std::uint64_t anon_bits(const Fault& fault) {
  const bool writable = (fault.vma.vm_flags & VM_WRITE) != 0;
  return fault.page_bits() | (writable ? std::uint64_t{Pte::kWrite | Pte::kDirty} : 0);
}

// Under the PTE's lock: `value` if the entry is still none.  False: somebody was faster, or
// the table is gone.
bool set_if_none(Fault& fault, Table& table, Pte value) {
  PageTableTree& tree = fault.pages.tree();
  if (tree.find_pte_table(fault.at) != &table || !tree.get(table, fault.at).none())
    return false;
  tree.set(table, fault.at, value);
  fault.task.charge(fault.pages.costs().pte_set);
  return true;
}

FaultResult map_zero_page(Fault& fault, Table& table) {
  Ptl lock(fault.task, fault.pages, table.page);
  const std::uint64_t bits = Pte::kPresent | Pte::kUser | Pte::kYoung | Pte::kZero;
  set_if_none(fault, table, Pte::leaf(Pfn{0}, bits));
  return FaultResult::kDone;
}

// Under the PTE's lock: maps a fresh page, or all pages of a large folio, if all entries
// are none.
bool map_folio(Fault& fault, Table& table, AnonFolio folio) {
  PageTables& pages = fault.pages;
  if (folio.order == 0) {
    if (!set_if_none(fault, table, Pte::leaf(folio.head, anon_bits(fault)))) return false;
    page_add_new_anon_rmap(fault.kernel, folio.head);
    note_anon_index(fault.kernel, folio.head, fault.vma, fault.at);
    if (fault.locked()) mark_mlocked(fault.kernel, folio.head, true);
    pages.rss_stat().add_fast(fault.task, RssKind::kAnon, 1);
    fault.kernel.mm_shared().page_locks.added(fault.task, 1);
    return true;
  }
  const Range range = folio_range(pages, fault.at, folio.order);
  PageTableTree& tree = pages.tree();
  if (tree.find_pte_table(fault.at) != &table) return false;
  if (tree.next_in_use(range.start, range.end, tree.pte_level()) < range.end) return false;
  const std::int64_t count = std::int64_t{1} << folio.order;
  Pte entry = Pte::leaf(folio.head, anon_bits(fault));
  for (VirtAddr at = range.start; at < range.end; at = at + pages.geometry().page_size()) {
    tree.set(table, at, entry);
    entry = entry.at_subpage(1);
  }
  page_add_new_folio_rmap(
      fault.kernel, folio.head, folio.order,
      fault.vma.linear_page_index(range.start, pages.geometry().page_shift));
  pages.rss_stat().add(fault.task, RssKind::kAnon, count);
  ++fault.kernel.mm_shared().mthp_stats[folio.order].anon_fault_alloc;
  fault.task.charge(pages.costs().pte_set * count);
  fault.kernel.mm_shared().page_locks.added(fault.task, 1, true);
  return true;
}

FaultResult do_anonymous_page(Fault& fault, Table& pmd) {
  Scope scope(fault.task, kDoAnonymousPage);
  PageTables& pages = fault.pages;
  const Pte above = pages.tree().get(pmd, fault.at);
  Table* table = above.is_table() ? PageTableTree::to_table(above)
                                  : pages.alloc_tables_to(fault.task, fault.at,
                                                          pages.tree().pte_level());
  if (table == nullptr) {
    // A huge page got in the way (pmd_trans_unstable()): the access is repeated.
    return pages.tree().get(pmd, fault.at).is_leaf() ? FaultResult::kDone
                                                     : FaultResult::kOom;
  }
  if (!fault.write()) return map_zero_page(fault, *table);
  if (const FaultResult r = anon_vma_prepare(fault); r != FaultResult::kDone) return r;
  const auto folio = alloc_anon_folio(fault, *table);
  if (!folio) return FaultResult::kOom;
  {
    Ptl lock(fault.task, pages, table->page);
    if (map_folio(fault, *table, *folio)) return FaultResult::kDone;
  }
  free_unmapped(fault, folio->head, folio->order);
  return FaultResult::kDone;
}

// __wp_can_reuse_large_anon_folio() (6.15): all mappings of the huge page are this
// process's.
bool can_reuse_piece(Kernel& kernel, Pfn head) {
  constexpr unsigned kMmIds = 6015;
  if (kernel.version() < kMmIds || compound_order(kernel, head) == 0) return false;
  return kernel.phys().page(head).refcount == total_mapcount(kernel, head) &&
         !folio_maybe_mapped_shared(kernel, head);
}

// The page under `old` may be written where it is: nobody else has it.
bool can_reuse(Fault& fault, Pte old) {
  if (!old.maps_anon()) return false;
  Kernel& kernel = fault.kernel;
  const CowReuse rule = kernel.config().cow_reuse;
  // reuse_swap_page(): a swap entry stands for it, too.
  if (kernel.mm_shared().swap.move_of(old.pfn()) != Swap::Move::kNone) return false;
  if (rule == CowReuse::kMapcount)
    return max_mapcount(kernel, compound_head(kernel, old.pfn())) == 1;
  const bool exclusive = is_exclusive(kernel, old.pfn());
  if (rule == CowReuse::kExclusive && exclusive) return true;
  const Pfn head = compound_head(kernel, old.pfn());
  return kernel.phys().page(head).refcount == 1 || can_reuse_piece(kernel, head);
}

// Under the PTE's lock: what `old` mapped is mapped here no longer.
void drop_old_page(Fault& fault, Pte old) {
  RssStat& rss = fault.pages.rss_stat();
  if (old.maps_anon()) {
    page_remove_rmap_pte(fault.kernel, old.pfn());
    if (fault.locked())
      mark_mlocked(fault.kernel, compound_head(fault.kernel, old.pfn()), false);
    return;
  }
  rss.add_fast(fault.task, RssKind::kAnon, 1);
  if (!old.has(Pte::kFile)) return;
  const bool shmem = old.maps_file() && is_shmem_page(fault.kernel, old.pfn());
  rss.add_fast(fault.task, shmem ? RssKind::kShmem : RssKind::kFile, -1);
  if (old.maps_file()) page_remove_file_rmap(fault.kernel, old.pfn());
}

FaultResult do_wp_page(Fault& fault, Table& table, Pte old) {
  Scope scope(fault.task, kDoWpPage);
  {
    Ptl lock(fault.task, fault.pages, table.page);
    PageTableTree& tree = fault.pages.tree();
    if (tree.find_pte_table(fault.at) != &table ||
        tree.get(table, fault.at).raw() != old.raw())
      return FaultResult::kDone;
    if ((fault.vma.vm_flags & VM_SHARED) != 0) {  // wp_page_shared()
      tree.set(table, fault.at, old.with(Pte::kWrite | Pte::kDirty | Pte::kYoung));
      fault.task.charge(fault.pages.costs().pte_set);
      return FaultResult::kDone;
    }
    if (can_reuse(fault, old)) {
      piece_of(fault.kernel, old.pfn()).flags |= Page::kAnonExclusive;
      tree.set(table, fault.at, old.with(Pte::kWrite | Pte::kDirty | Pte::kYoung));
      fault.task.charge(fault.pages.costs().pte_set);
      return FaultResult::kDone;
    }
  }
  const bool no_page = old.zero_page() || (old.has(Pte::kFile) && !old.maps_file());
  return wp_page_copy(fault, table, old, no_page ? std::nullopt : std::optional(old.pfn()));
}

// ptep_set_access_flags(): the fault was for the accessed or dirty bit, or another thread's
// came first.
FaultResult set_access_flags(Fault& fault, Table& table, Pte old) {
  if (old.has_all(fault.accessed_bits())) return FaultResult::kDone;
  Ptl lock(fault.task, fault.pages, table.page);
  PageTableTree& tree = fault.pages.tree();
  if (tree.find_pte_table(fault.at) == &table &&
      tree.get(table, fault.at).raw() == old.raw()) {
    tree.set(table, fault.at, old.with(fault.accessed_bits()));
    fault.task.charge(fault.pages.costs().pte_set);
  }
  return FaultResult::kDone;
}

}  // namespace

FaultResult wp_page_copy(Fault& fault, Table& table, Pte old, std::optional<Pfn> source) {
  PageTables& pages = fault.pages;
  if (const FaultResult r = anon_vma_prepare(fault); r != FaultResult::kDone) return r;
  const auto page = alloc_base_page(fault);
  if (!page) return FaultResult::kOom;
  const std::uint64_t size = pages.geometry().page_size();
  if (source)
    copy_pages(fault.task, fault.kernel, *source, *page, size);
  else
    clear_pages(fault.task, fault.kernel, *page, size);
  Ptl lock(fault.task, pages, table.page);
  PageTableTree& tree = pages.tree();
  if (tree.find_pte_table(fault.at) != &table ||
      tree.get(table, fault.at).raw() != old.raw()) {
    lock.unlock();
    free_unmapped(fault, *page);
    return FaultResult::kDone;
  }
  tree.set(table, fault.at, Pte::leaf(*page, anon_bits(fault)));
  page_add_new_anon_rmap(fault.kernel, *page);
  note_anon_index(fault.kernel, *page, fault.vma, fault.at);
  if (fault.locked()) mark_mlocked(fault.kernel, *page, true);
  fault.task.charge(pages.costs().pte_set);
  fault.kernel.mm_shared().page_locks.added(fault.task, 1);
  if (old.present())
    flush_tlb_range(fault.task, pages,
                    pages.page_range(fault.at));  // ptep_clear_flush_notify()
  drop_old_page(fault, old);
  lock.unlock();
  if (!old.maps_anon() && !old.maps_file()) return FaultResult::kDone;
  fault.task.sync();
  put_page(fault.kernel, old.pfn(), fault.task.cpu());
  return FaultResult::kDone;
}

FaultResult handle_pte_fault(Fault& fault, Table& pmd) {
  PageTableTree& tree = fault.pages.tree();
  const Pte above = tree.get(pmd, fault.at);
  const Pte entry =
      above.is_table() ? tree.get(*PageTableTree::to_table(above), fault.at) : Pte{};
  if (entry.none())
    return fault.vma.anonymous ? do_anonymous_page(fault, pmd) : do_fault(fault);
  if (entry.has(Pte::kGuard)) return FaultResult::kSigsegv;
  if (entry.has(Pte::kVrange)) [[unlikely]]
    return fault.kernel.mm_shared().vranges().fault(fault, *PageTableTree::to_table(above),
                                                    entry, pmd);
  if (entry.has(Pte::kSwap))
    return do_swap_page(fault, *PageTableTree::to_table(above), entry);
  if (fault.write() && !entry.has(Pte::kWrite))
    return do_wp_page(fault, *PageTableTree::to_table(above), entry);
  return set_access_flags(fault, *PageTableTree::to_table(above), entry);
}

}  // namespace faultline::kernel
