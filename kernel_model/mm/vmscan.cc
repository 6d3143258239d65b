// SPDX-License-Identifier: Apache-2.0
//
// Which pages reclaim looks at: lists, priorities, kswapd.
#include "kernel_model/mm/vmscan.h"

#include <algorithm>
#include <utility>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kKswapd{"kswapd", true}, kBalancePgdat{"balance_pgdat", true};
constexpr Centre kShrinkNode{"shrink_node", true};
constexpr Centre kShrinkActiveList{"shrink_active_list", true};
constexpr Centre kShrinkInactiveList{"shrink_inactive_list", true};
constexpr Centre kTryToFreePages{"try_to_free_pages", true};
constexpr unsigned kDefPriority = 12;        // DEF_PRIORITY
constexpr unsigned kMaxReclaimRetries = 16;  // MAX_RECLAIM_RETRIES

constexpr Duration kCongestionWait = Duration::ms(100);  // HZ / 10

std::uint64_t int_sqrt(std::uint64_t n) {
  std::uint64_t root = 0;
  while ((root + 1) * (root + 1) <= n) ++root;
  return root;
}

std::size_t index(LruList list) {
  return static_cast<std::size_t>(list);
}

}  // namespace

Vmscan::Vmscan(Kernel& kernel) : kernel_(kernel), nodes_(kernel.profile().nodes.size()) {}
Vmscan::~Vmscan() = default;

// inactive_is_low(): the active list may be as much larger as memory is large.
bool Vmscan::inactive_is_low(int node, bool file) const {
  const Lru& lru = kernel_.mm_shared().lrus;
  const std::uint64_t inactive =
      lru.size(node, file ? LruList::kInactiveFile : LruList::kInactiveAnon);
  const std::uint64_t active =
      lru.size(node, file ? LruList::kActiveFile : LruList::kActiveAnon);
  const std::uint64_t gb =
      (inactive + active) >> (30 - kernel_.profile().geometry.page_shift);
  const std::uint64_t ratio = gb > 0 ? int_sqrt(10 * gb) : 1;
  return inactive * ratio < active;
}

// get_scan_count().  Model: the shares of anonymous and file pages follow swappiness alone,
// not what either has cost so far.
Vmscan::ScanCount Vmscan::get_scan_count(int node, const ScanControl& sc) const {
  const Lru& lru = kernel_.mm_shared().lrus;
  const auto size = [&](LruList list) { return lru.size(node, list); };
  std::uint64_t anon_share = kernel_.config().swappiness;
  std::uint64_t file_share = 200 - anon_share;
  // v5 and v6 let anonymous pages be scanned for volatile ones without swap, too.
  const bool can_swap = kernel_.mm_shared().swap.free_pages() > 0 ||
                        kernel_.config().vrange == VrangeVersion::kVma;
  // Enough inactive cache: anonymous memory is left alone.
  const bool trim_cache =
      !inactive_is_low(node, true) && size(LruList::kInactiveFile) >> sc.priority != 0;
  if (!can_swap || trim_cache) {
    anon_share = 0;
    file_share = 1;
  } else if (sc.priority == 0) {
    anon_share = file_share = 1;  // SCAN_EQUAL
  }
  const std::uint64_t all = sc.priority == 0 ? 1 : anon_share + file_share;
  ScanCount count;
  for (const LruList list : {LruList::kInactiveAnon, LruList::kActiveAnon,
                             LruList::kInactiveFile, LruList::kActiveFile}) {
    const bool file = list == LruList::kInactiveFile || list == LruList::kActiveFile;
    std::uint64_t scan = size(list) >> sc.priority;
    if (scan == 0 && sc.why == ScanControl::For::kMemcg)
      scan = std::min<std::uint64_t>(size(list), kSwapClusterMax);
    count.of[index(list)] = scan * (file ? file_share : anon_share) / all;
  }
  return count;
}

void Vmscan::shrink_lruvec(Task& task, int node, ScanControl& sc) {
  ScanCount nr = get_scan_count(node, sc);
  const auto more = [&] {
    return nr.of[index(LruList::kInactiveAnon)] != 0 ||
           nr.of[index(LruList::kActiveFile)] != 0 ||
           nr.of[index(LruList::kInactiveFile)] != 0;
  };
  const std::uint64_t before = sc.nr_reclaimed;
  Vranges& vranges = kernel_.mm_shared().vranges();
  // Model: the hook in shrink_list() is asked even if the lists give nothing to scan.
  if (!more()) sc.nr_reclaimed += vranges.shrink_vrange(task, true, sc);
  while (more()) {
    for (std::size_t i = 0; i < nr.of.size(); ++i) {
      if (nr.of[i] == 0) continue;
      const auto list = static_cast<LruList>(i);
      const bool file = list == LruList::kInactiveFile || list == LruList::kActiveFile;
      sc.nr_reclaimed += vranges.shrink_vrange(task, file, sc);
      if (sc.nr_reclaimed - before >= sc.nr_to_reclaim && vranges.hooks_shrink_list())
        break;
      const std::uint64_t scan = std::min<std::uint64_t>(nr.of[i], kSwapClusterMax);
      nr.of[i] -= scan;
      if (list == LruList::kInactiveAnon || list == LruList::kInactiveFile)
        shrink_inactive_list(task, node, list, scan, sc);
      else if (inactive_is_low(node, list == LruList::kActiveFile))
        shrink_active_list(task, node, list, scan, sc);
    }
    if (sc.nr_reclaimed - before >= sc.nr_to_reclaim) break;
  }
  // Even if nothing was to be scanned: anonymous pages age.
  const bool ages = kernel_.mm_shared().swap.total_pages() > 0 ||
                    kernel_.config().vrange == VrangeVersion::kVma;
  if (ages && inactive_is_low(node, false))
    shrink_active_list(task, node, LruList::kActiveAnon, kSwapClusterMax, sc);
}

// isolate_lru_pages(): from the old end.
void Vmscan::isolate(Task& task, int node, LruList list, std::uint64_t most, Batch& batch,
                     ScanControl& sc) {
  Lru& lru = kernel_.mm_shared().lrus;
  task.sync();
  LruLock lock(task, kernel_.mm_shared().page_locks, node);
  batch.count = 0;
  Pfn page;
  while (batch.count < most && batch.count < batch.pages.size() &&
         lru.tail(node, list, page)) {
    ++sc.nr_scanned;
    Page& frame = kernel_.phys().page(page);
    if ((frame.flags & Page::kUnevictable) != 0) {  // locked meanwhile: culled
      lru.move(frame, page);
      continue;
    }
    FAULTLINE_CHECK(lru.isolate(page));
    batch.pages[batch.count++] = page;
  }
  lock.count(batch.count);
}

// putback_inactive_pages(), move_active_pages_to_lru().
void Vmscan::putback(Task& task, const Batch& batch) {
  if (batch.count == 0) return;
  MmShared& shared = kernel_.mm_shared();
  LruLock lock(task, shared.page_locks, kernel_.phys().node_of(batch.pages[0]));
  for (std::size_t i = 0; i < batch.count; ++i)
    shared.lrus.putback(batch.pages[i], task.cpu());
  lock.count(batch.count);
}

void Vmscan::shrink_active_list(Task& task, int node, LruList list, std::uint64_t most,
                                ScanControl& sc) {
  const Scope scope(task, kShrinkActiveList);
  Batch batch;
  isolate(task, node, list, most, batch, sc);
  kernel_.vmstat().pgrefill += batch.count;
  Lru& lru = kernel_.mm_shared().lrus;
  const bool together = kernel_.mm_shared().page_locks.on();
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Pfn page = batch.pages[i];
    static_cast<void>(page_referenced(task, page));  // Model: no executable file pages
    kernel_.phys().page(page).flags &= static_cast<std::uint16_t>(~Page::kActive);
    ++kernel_.vmstat().pgdeactivate;
    task.sync();
    if (!together) lru.putback(page, task.cpu());
  }
  if (together) putback(task, batch);
}

void Vmscan::shrink_inactive_list(Task& task, int node, LruList list, std::uint64_t most,
                                  ScanControl& sc) {
  const Scope scope(task, kShrinkInactiveList);
  Swap& swap = kernel_.mm_shared().swap;
  if (swap.queues()) swap.end_writes(task);
  Batch batch;
  isolate(task, node, list, most, batch, sc);
  if (batch.count == 0) return;
  const std::uint64_t taken = batch.count;
  sc.nr_writeback = 0;
  Vmstat& v = kernel_.vmstat();
  (sc.kswapd() ? v.pgscan_kswapd : v.pgscan_direct) += batch.count;
  const std::uint64_t freed = shrink_page_list(task, batch, sc);
  (sc.kswapd() ? v.pgsteal_kswapd : v.pgsteal_direct) += freed;
  sc.nr_reclaimed += freed;
  // PGDAT_WRITEBACK: kswapd finds only what is being written.
  if (sc.kswapd() && sc.nr_writeback == taken) swap.congestion_wait(task, kCongestionWait);
}

// shrink_slab(): huge pages with unmapped pieces, and the huge zero page.
void Vmscan::shrink_slab(Task& task, ScanControl& sc) {
  MmShared& shared = kernel_.mm_shared();
  const auto scan_of = [&](std::uint64_t freeable) {
    constexpr std::uint64_t kBatch = 128;  // SHRINK_BATCH
    const std::uint64_t scan = std::min((freeable >> sc.priority) * 2, 2 * freeable);
    return scan >= kBatch || (freeable > 0 && scan >= freeable) ? scan : 0;
  };
  if (const std::uint64_t n = scan_of(shared.deferred_split.size()))
    sc.nr_reclaimed += deferred_split_scan(task, kernel_, n);
  const std::uint64_t pmd = kernel_.profile().geometry.pages_per_pmd();
  if (shared.huge_zero_page() && scan_of(pmd) > 0 && shared.free_huge_zero_page(task.cpu()))
    sc.nr_reclaimed += pmd;
  sc.nr_reclaimed += shared.swap.drop_unused(sc.nr_to_reclaim, task.cpu());
  if (shared.vranges().version() == VrangeVersion::k9)
    if (const std::uint64_t bytes = scan_of(shared.vranges().lru_bytes()))
      sc.nr_reclaimed += shared.vranges().shrink_bytes(task, bytes, sc);
}

void Vmscan::shrink_node(Task& task, int node, ScanControl& sc) {
  const Scope scope(task, kShrinkNode);
  kernel_.mm_shared().lru.lru_add_drain_all();
  shrink_lruvec(task, node, sc);
  shrink_slab(task, sc);
}

// do_try_to_free_pages(): harder each round.
std::uint64_t Vmscan::try_to_free_pages(Task& task, int node, ScanControl::For why,
                                        std::uint64_t pages) {
  const Scope scope(task, kTryToFreePages);
  if (why == ScanControl::For::kDirect) ++kernel_.vmstat().allocstall_normal;
  reclaimers_.push_back(&task);
  ScanControl sc;
  sc.why = why;
  sc.nr_to_reclaim = std::max<std::uint64_t>(pages, kSwapClusterMax);
  const auto nodes = static_cast<int>(nodes_.size());
  for (unsigned round = 0; round <= kDefPriority; ++round) {
    sc.priority = kDefPriority - round;
    for (int i = 0; i < nodes && sc.nr_reclaimed < sc.nr_to_reclaim; ++i)
      shrink_node(task, (node + i) % nodes, sc);
    if (sc.nr_reclaimed >= sc.nr_to_reclaim) break;
  }
  std::erase(reclaimers_, &task);
  return sc.nr_reclaimed;
}

void Vmscan::Daemon::wake(Engine& engine, const std::string& name,
                          std::function<void(Task&)> body) {
  if (task == nullptr) {
    task = &engine.spawn(name, std::move(body));
    engine.set_daemon(*task);
  } else if (asleep) {
    asleep = false;
    engine.wake(*task, engine.now());
  }
}

void Vmscan::Daemon::sleep(Task& self) {
  asleep = true;
  self.block(TaskState::kSleeping);
}

void Vmscan::wakeup_kswapd(int node, unsigned order) {
  NodeState& state = nodes_[static_cast<std::size_t>(node)];
  state.order = std::max(state.order, order);
  if (state.failures >= kMaxReclaimRetries || balanced(node, order)) return;
  state.kswapd.wake(kernel_.engine(), "kswapd" + std::to_string(node),
                    [this, node](Task& task) { kswapd(task, node); });
}

void Vmscan::kswapd(Task& task, int node) {
  const Scope scope(task, kKswapd);
  NodeState& state = nodes_[static_cast<std::size_t>(node)];
  for (;;) {
    balance_pgdat(task, node);
    // kswapd_try_to_sleep(): what it couldn't put together is kcompactd's task.
    if (state.order > 0) wakeup_kcompactd(node, state.order);
    state.order = 0;
    task.sync();
    if (!balanced(node, 0) && state.failures < kMaxReclaimRetries) continue;
    state.kswapd.sleep(task);
  }
}

// pgdat_balanced()
bool Vmscan::balanced(int node, unsigned order) const {
  const PhysMem& phys = kernel_.phys();
  return phys.watermark_ok(node, order, phys.watermarks(node).high);
}

void Vmscan::balance_pgdat(Task& task, int node) {
  const Scope scope(task, kBalancePgdat);
  NodeState& state = nodes_[static_cast<std::size_t>(node)];
  ++kernel_.vmstat().pageoutrun;
  ScanControl sc;
  sc.why = ScanControl::For::kKswapd;
  for (sc.priority = kDefPriority; sc.priority >= 1; --sc.priority) {
    task.sync();
    // For a large block only order-0 memory is reclaimed; the block is compaction's task.
    if (balanced(node, 0)) return;
    kernel_.mm_shared().lrus.start();
    sc.nr_scanned = 0;
    sc.nr_to_reclaim =
        std::max<std::uint64_t>(kernel_.phys().watermarks(node).high, kSwapClusterMax);
    const std::uint64_t before = sc.nr_reclaimed;
    // v7: volatile pages go before any other.
    if (Vranges& vranges = kernel_.mm_shared().vranges();
        vranges.version() == VrangeVersion::k7 && state.order == 0) {
      sc.nr_reclaimed += vranges.discard_vrange_pages(task, node, kSwapClusterMax, sc);
      if (balanced(node, 0)) break;
    }
    shrink_node(task, node, sc);
    // Enough was scanned at this priority: again, as long as it helps.
    if (sc.nr_reclaimed > before && sc.nr_scanned >= sc.nr_to_reclaim) ++sc.priority;
  }
  state.failures = sc.nr_reclaimed == 0 ? state.failures + 1 : 0;
}

}  // namespace faultline::kernel
