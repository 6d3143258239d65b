// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/mthp.h"

#include <algorithm>
#include <bit>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/huge_fault.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

// Orders 0 and 1 are never large anonymous folios (THP_ORDERS_ALL_ANON).
std::uint32_t orders_of(const std::vector<std::uint64_t>& sizes,
                        const arch::Geometry& geometry) {
  std::uint32_t orders = 0;
  for (const std::uint64_t size : sizes) {
    if (size < 4 * geometry.page_size() || size >= geometry.pmd_size()) continue;
    orders |= 1U << (std::bit_width(size >> geometry.page_shift) - 1);
  }
  return orders;
}

unsigned highest(std::uint32_t orders) {
  return static_cast<unsigned>(std::bit_width(orders)) - 1;
}

bool range_none(const Table& table, const LevelShape& shape, Range range) {
  const std::uint64_t from = (range.start - table.start) >> shape.shift;
  const std::uint64_t to = (range.end - table.start) >> shape.shift;
  return PageTableTree::next_index(table, from, to) == to;
}

// thp_vma_suitable_orders(), then those whose entries are all empty: the highest, and all
// below.
std::uint32_t suitable(const Fault& fault, const Table& table, std::uint32_t orders) {
  const LevelShape& shape = fault.pages.tree().shape(table.level);
  while (orders != 0) {
    const Range range = folio_range(fault.pages, fault.at, highest(orders));
    if (fault.vma.range().contains(range) && range_none(table, shape, range)) break;
    orders &= ~(1U << highest(orders));
  }
  return orders;
}

MaybePfn alloc(Fault& fault, unsigned order, GfpReclaim reclaim) {
  PageLocks& locks = fault.kernel.mm_shared().page_locks;
  fault.task.charge(locks.page_alloc());
  fault.task.sync();
  AllocRequest request;
  request.order = order;
  request.preferred_node = fault.task.node();
  request.reclaim = reclaim;
  const MaybePfn page = fault.kernel.phys().alloc_pages(request, fault.task.cpu());
  locks.settle(fault.task);
  return page;
}

}  // namespace

Range tlb_entry_range(const PageTables& pages, VirtAddr at) {
  if (pages.maps_huge(at)) return pages.pmd_range(at);
  const arch::Geometry& geometry = pages.geometry();
  const Range page = pages.page_range(at);
  // Folding came with 6.9.
  if (geometry.contpte_pages == 0 || pages.kernel().version() < 6009) return page;
  const Range block = folio_range(
      pages, at, static_cast<unsigned>(std::bit_width(geometry.contpte_pages) - 1));
  const PageView first = pages.look(block.start);
  Kernel& kernel = pages.kernel();
  if (first.kind != PageView::kBase || first.file ||
      first.pfn.v % geometry.contpte_pages != 0)
    return page;
  const Pfn folio = compound_head(kernel, first.pfn);
  if (1U << compound_order(kernel, folio) < geometry.contpte_pages) return page;
  std::uint32_t i = 0;
  for (VirtAddr p = block.start; p < block.end; p = p + geometry.page_size(), ++i) {
    const PageView view = pages.look(p);
    if (view.kind != PageView::kBase || view.pfn.v != first.pfn.v + i ||
        view.writable != first.writable)
      return page;
  }
  return block;
}

Range folio_range(const PageTables& pages, VirtAddr at, unsigned order) {
  const std::uint64_t size = pages.geometry().page_size() << order;
  const VirtAddr start{at.v & ~(size - 1)};
  return {start, start + size};
}

std::uint32_t mthp_orders(const Kernel& kernel, const Mm& mm, const Vma& vma) {
  const KernelConfig& config = kernel.config();
  if (kernel.version() < 6008 || !thp_possible(kernel, mm, vma)) return 0;
  const arch::Geometry& geometry = kernel.profile().geometry;
  const bool advised = (vma.vm_flags & VM_HUGEPAGE) != 0;
  std::uint32_t orders = orders_of(config.mthp_always, geometry);
  if (advised) orders |= orders_of(config.mthp_madvise, geometry);
  if (thp_allowed(kernel, mm, vma)) orders |= orders_of(config.mthp_inherit, geometry);
  return orders;
}

std::optional<AnonFolio> alloc_anon_folio(Fault& fault, const Table& table) {
  std::uint32_t orders = mthp_orders(fault.kernel, fault.mm, fault.vma);
  if (orders != 0) orders = suitable(fault, table, orders);
  const std::uint64_t page_size = fault.pages.geometry().page_size();
  for (; orders != 0; orders &= ~(1U << highest(orders))) {
    const unsigned order = highest(orders);
    if (const auto head = alloc(fault, order, thp_gfp(fault.kernel, fault.vma))) {
      clear_pages(fault.task, fault.kernel, *head, page_size << order);
      return AnonFolio{*head, order};
    }
    ++fault.kernel.mm_shared().mthp_stats[order].anon_fault_fallback;  // steps down
  }
  const auto page = alloc(fault, 0, GfpReclaim::kDirect);
  if (!page) return std::nullopt;
  clear_pages(fault.task, fault.kernel, *page, page_size);
  return AnonFolio{*page, 0};
}

}  // namespace faultline::kernel
