// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/compaction.h"

#include <algorithm>

#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kCompactZone{"compact_zone", true};
constexpr Centre kMigratePages{"migrate_pages", true};
constexpr unsigned kCostlyOrder = 3;     // PAGE_ALLOC_COSTLY_ORDER
constexpr unsigned kMaxDeferShift = 6;   // COMPACT_MAX_DEFER_SHIFT
constexpr std::size_t kClusterMax = 32;  // COMPACT_CLUSTER_MAX

// A page on a list that may move: single, evictable or not.
bool may_move(const Page& page) {
  constexpr std::uint16_t kNot = Page::kHead | Page::kTail | Page::kBuddy | Page::kPcp;
  return (page.flags & (Page::kLru | kNot)) == Page::kLru;
}

}  // namespace

Compaction::Compaction(Kernel& kernel)
    : kernel_(kernel), zones_(kernel.profile().nodes.size()) {}

// compaction_deferred()
bool Compaction::deferred(Zone& zone, unsigned order) const {
  const unsigned limit = 1U << zone.defer_shift;
  if (order < zone.order_failed) return false;
  if (++zone.considered >= limit) {
    zone.considered = limit;
    return false;
  }
  return true;
}

void Compaction::defer(Zone& zone, unsigned order) {
  zone.considered = 0;
  zone.defer_shift = std::min(zone.defer_shift + 1, kMaxDeferShift);
  zone.order_failed = std::min(zone.order_failed, order);
}

void Compaction::defer_reset(int node, unsigned order) {
  Zone& zone = zones_[static_cast<std::size_t>(node)];
  zone.considered = zone.defer_shift = 0;
  if (order >= zone.order_failed) zone.order_failed = order + 1;
}

int Compaction::fragmentation_index(int node, unsigned order) const {
  const PhysMem& phys = kernel_.phys();
  const unsigned max_order = kernel_.profile().geometry.max_order;
  std::uint64_t blocks = 0;
  for (unsigned o = 0; o <= max_order; ++o) {
    const std::uint64_t free = phys.free_blocks(node, o);
    blocks += free;
    if (o >= order && free > 0) return -1000;
  }
  if (blocks == 0) return 0;
  const std::uint64_t wanted = std::uint64_t{1} << order;
  const std::uint64_t part = (1000 + phys.nr_free_pages(node) * 1000 / wanted) / blocks;
  return 1000 - static_cast<int>(part);
}

// compaction_suitable(): enough free memory to move pages into, and fragmentation, not the
// lack of memory, is why there is no block.
bool Compaction::suitable(int node, unsigned order) const {
  const PhysMem& phys = kernel_.phys();
  const auto marks = phys.watermarks(node);
  const std::uint64_t gap = std::uint64_t{2} << order;  // compact_gap()
  const std::uint64_t mark = order > kCostlyOrder ? marks.low : marks.min;
  if (!phys.watermark_ok(node, 0, mark + gap)) return false;
  if (order <= kCostlyOrder) return true;
  const int index = fragmentation_index(node, order);
  return index < 0 || index > static_cast<int>(kernel_.config().extfrag_threshold);
}

CompactResult Compaction::try_to_compact(Task& task, const AllocRequest& request,
                                         CompactMode mode) {
  CompactResult best = CompactResult::kSkipped;
  const int nodes = kernel_.phys().nodes();
  for (int i = 0; i < (request.this_node_only ? 1 : nodes); ++i) {
    const int node = (request.preferred_node + i) % nodes;
    Zone& zone = zones_[static_cast<std::size_t>(node)];
    CompactResult result = CompactResult::kDeferred;
    if (!deferred(zone, request.order))
      result = compact_zone(task, node, request.order, mode);
    best = std::max(best, result);
    if (result == CompactResult::kSuccess) {
      // compaction_defer_reset(): the zone has one again, whoever gets it.
      if (request.order >= zone.order_failed) zone.order_failed = request.order + 1;
      return result;
    }
    if (mode == CompactMode::kSyncLight && result == CompactResult::kComplete)
      defer(zone, request.order);
  }
  return best;
}

void Compaction::kcompactd_do_work(Task& task, int node, unsigned order) {
  Zone& zone = zones_[static_cast<std::size_t>(node)];
  if (deferred(zone, order)) return;
  const CompactResult result = compact_zone(task, node, order, CompactMode::kSyncLight);
  if (result == CompactResult::kSuccess)
    defer_reset(node, order);
  else if (result == CompactResult::kComplete)
    defer(zone, order);
}

CompactResult Compaction::compact_zone(Task& task, int node, unsigned order,
                                       CompactMode mode) {
  if (!suitable(node, order)) return CompactResult::kSkipped;
  const Scope scope(task, kCompactZone);
  PhysMem& phys = kernel_.phys();
  Zone& zone = zones_[static_cast<std::size_t>(node)];
  if (zone.busy) return CompactResult::kSkipped;
  zone.busy = true;
  kernel_.mm_shared().lrus.start();
  kernel_.mm_shared().lru.lru_add_drain_all();
  phys.drain_all_pages();
  const Range32 frames = phys.frames_of(node);
  const std::uint32_t block = 1U << phys.pageblock_order();
  zone.migrate = frames.first;
  zone.target = (frames.end - 1) & ~(block - 1);
  CompactResult result = CompactResult::kComplete;
  while (zone.migrate < zone.target) {
    const std::uint32_t end = (zone.migrate & ~(block - 1)) + block;
    while (zone.migrate < std::min(end, zone.target)) {
      isolate_migratepages(task, node, zone, mode);
      migrate_pages(task, node, zone);
    }
    task.sync();
    if (phys.free_blocks_at_least(node, order)) {  // compact_finished()
      result = CompactResult::kSuccess;
      break;
    }
  }
  give_back(zone);
  zone.busy = false;
  if (result != CompactResult::kSuccess && phys.free_blocks_at_least(node, order))
    result = CompactResult::kSuccess;
  return result;
}

// One cluster of pages off their lists, from where the scanner stands to the end of its
// pageblock.
void Compaction::isolate_migratepages(Task& task, int node, Zone& zone, CompactMode mode) {
  PhysMem& phys = kernel_.phys();
  Lru& lru = kernel_.mm_shared().lrus;
  task.sync();
  const std::uint32_t block = 1U << phys.pageblock_order();
  const std::uint32_t end = std::min((zone.migrate & ~(block - 1)) + block, zone.target);
  std::int64_t scanned = 0;
  const bool movable = phys.type_of({zone.migrate}) == MigrateType::kMovable;
  if (mode == CompactMode::kAsync && !movable)
    zone.migrate = end;  // suitable_migration_source()
  while (zone.migrate < end && zone.to_move.size() < kClusterMax) {
    const Pfn pfn{zone.migrate};
    const Page& page = phys.page(pfn);
    ++scanned;
    const bool whole = (page.flags & (Page::kBuddy | Page::kHead)) != 0;
    zone.migrate += whole ? 1U << page.order : 1U;
    if (!whole && may_move(page) && lru.isolate(pfn)) zone.to_move.push_back(pfn);
  }
  static_cast<void>(node);
  kernel_.vmstat().compact_migrate_scanned += static_cast<std::uint64_t>(scanned);
  kernel_.vmstat().compact_isolated += zone.to_move.size();
  task.charge(kernel_.profile().costs.compact_scan_page * scanned);
}

// Free pages from the high end down, all of a pageblock at a time.
bool Compaction::isolate_freepages(Task& task, int node, Zone& zone) {
  PhysMem& phys = kernel_.phys();
  const std::uint32_t block = 1U << phys.pageblock_order();
  task.sync();
  std::int64_t scanned = 0;
  while (zone.free.empty() && zone.target > zone.migrate) {
    const std::uint32_t start = zone.target;
    zone.target = start >= block ? start - block : 0;
    if (phys.type_of({start}) != MigrateType::kMovable) continue;
    const std::uint32_t end = std::min(start + block, phys.frames_of(node).end);
    for (std::uint32_t at = start; at < end;) {
      ++scanned;
      const Page& page = phys.page({at});
      if ((page.flags & Page::kBuddy) == 0) {
        at += (page.flags & Page::kHead) != 0 ? 1U << page.order : 1U;
        continue;
      }
      const std::uint32_t pages = 1U << page.order;
      phys.isolate_free_block({at});
      for (std::uint32_t i = 0; i < pages; ++i) zone.free.push_back({at + i});
      at += pages;
    }
  }
  kernel_.vmstat().compact_free_scanned += static_cast<std::uint64_t>(scanned);
  task.charge(kernel_.profile().costs.compact_scan_page * scanned);
  return !zone.free.empty();
}

void Compaction::migrate_pages(Task& task, int node, Zone& zone) {
  if (zone.to_move.empty()) return;
  const Scope scope(task, kMigratePages);
  Lru& lru = kernel_.mm_shared().lrus;
  while (!zone.to_move.empty()) {
    const Pfn from = zone.to_move.back();
    const bool target = !zone.free.empty() || isolate_freepages(task, node, zone);
    bool moved = false;
    if (target) {
      const Pfn to = zone.free.back();
      zone.free.pop_back();
      moved = migrate(task, from, to);
      if (!moved) zone.free.push_back(to);
    }
    zone.to_move.pop_back();
    ++(moved ? kernel_.vmstat().pgmigrate_success : kernel_.vmstat().pgmigrate_fail);
    task.sync();
    if (!moved) lru.putback(from, task.cpu());
  }
}

// migrate_folio(): false leaves everything as it was, `from` still isolated.
bool Compaction::migrate(Task& task, Pfn from, Pfn to) {
  task.charge(kernel_.profile().costs.migrate_page);
  stream_copy(task, kernel_, to, kernel_.profile().geometry.page_size());
  task.sync();
  const Page& old = kernel_.phys().page(from);
  const bool cached = (old.flags & Page::kAnon) == 0;
  if (old.mapcount > 1 || (old.mapcount == 0 && !cached) || held_by_others(from))
    return false;
  if (old.mapcount == 1) {
    if (!move_mapping(task, from, to)) return false;
  } else {
    become(from, to);
  }
  task.sync();
  kernel_.phys().free_to_buddy(from);
  kernel_.mm_shared().lrus.putback(to, task.cpu());
  return true;
}

// References beside those of its mappings, the page cache and us.
bool Compaction::held_by_others(Pfn page) const {
  const Page& frame = kernel_.phys().page(page);
  const bool cached = (frame.flags & Page::kAnon) == 0;
  return frame.refcount != frame.mapcount + 1 + (cached ? 1 : 0);
}

// folio_migrate_flags(), migrate_page_move_mapping(): no time passes.
void Compaction::become(Pfn from, Pfn to) {
  PhysMem& phys = kernel_.phys();
  Lru& lru = kernel_.mm_shared().lrus;
  Page& old = phys.page(from);
  const bool cached = (old.flags & Page::kAnon) == 0;
  phys.page(to) = old;
  lru.copy_index(from, to, 0);
  if (cached)
    kernel_.mm_shared().files.find(lru.file_of(from))->replace(lru.index_of(from), to);
  if (PageContents* contents = kernel_.contents()) contents->copied(from, to, 1);
  old = Page{};
}

// The only entry that maps `from` maps `to` instead.
bool Compaction::move_mapping(Task& task, Pfn from, Pfn to) {
  Mm* mm = nullptr;
  VirtAddr at;
  kernel_.mm_shared().lrus.for_each_place(from, [&](Mm& m, const Vma&, VirtAddr a) {
    mm = &m;
    at = a;
    return false;
  });
  if (mm == nullptr) return false;
  const MmGrab grab(*mm);
  PageTables& pages = mm->pages();
  Table* table = pages.tree().find_pte_table(at);
  if (table == nullptr) return false;
  Ptl lock(task, pages, table->page);
  if (pages.tree().find_pte_table(at) != table || held_by_others(from) ||
      kernel_.phys().page(from).mapcount != 1)
    return false;
  const Pte entry = pages.tree().get(*table, at);
  if (!entry.present() || entry.zero_page() || entry.pfn() != from) return false;
  pages.tree().set(*table, at, entry.with_pfn(to));
  mm->process().access_caches.forget();
  become(from, to);
  lock.unlock();
  flush_tlb_range(task, pages, pages.page_range(at));
  return true;
}

void Compaction::give_back(Zone& zone) {
  for (const Pfn pfn : zone.free) kernel_.phys().free_to_buddy(pfn);
  zone.free.clear();
}

}  // namespace faultline::kernel
