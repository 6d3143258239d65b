// SPDX-License-Identifier: Apache-2.0
//
// Allocations that find too little: the memory cgroup's limit, reclaim and compaction by
// the one who allocates, kcompactd.
//
// Stands for: __alloc_pages_slowpath(), __alloc_pages_direct_compact() (mm/page_alloc.c),
// kcompactd() (mm/compaction.c), try_charge() (mm/memcontrol.c), v4.15-6.18.
#include <algorithm>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kKcompactd{"kcompactd", true};
constexpr unsigned kMaxReclaimRetries = 16;  // MAX_RECLAIM_RETRIES

}  // namespace

void Vmscan::wakeup_kcompactd(int node, unsigned order) {
  if (!kernel_.config().compaction) return;
  NodeState& state = nodes_[static_cast<std::size_t>(node)];
  state.compact_order = std::max(state.compact_order, order);
  state.kcompactd.wake(kernel_.engine(), "kcompactd" + std::to_string(node),
                       [this, node](Task& task) { kcompactd(task, node); });
}

void Vmscan::kcompactd(Task& task, int node) {
  const Scope scope(task, kKcompactd);
  NodeState& state = nodes_[static_cast<std::size_t>(node)];
  for (;;) {
    const unsigned order = state.compact_order;
    state.compact_order = 0;
    ++kernel_.vmstat().compact_daemon_wake;
    kernel_.mm_shared().compaction().kcompactd_do_work(task, node, order);
    task.sync();
    if (state.compact_order > 0) continue;
    state.kcompactd.sleep(task);
  }
}

// __alloc_pages_direct_compact()
MaybePfn Vmscan::compact_direct(Task& task, const AllocRequest& request, int cpu,
                                CompactMode mode, CompactResult& result) {
  Compaction& compaction = kernel_.mm_shared().compaction();
  result = compaction.try_to_compact(task, request, mode);
  if (result == CompactResult::kSkipped) return std::nullopt;
  task.sync();
  ++kernel_.vmstat().compact_stall;
  const auto page = kernel_.phys().try_alloc(request, cpu, PhysMem::Mark::kMin);
  ++(page ? kernel_.vmstat().compact_success : kernel_.vmstat().compact_fail);
  if (page) compaction.defer_reset(kernel_.phys().node_of(*page), request.order);
  return page;
}

std::uint64_t Vmscan::memcg_usage() const {
  const PhysStats& stats = kernel_.phys().stats();
  std::uint64_t others = 0;
  for (const HugetlbPool& pool : kernel_.hugetlb().pools())
    others += pool.nr_huge_pages << pool.order;
  if (kernel_.mm_shared().huge_zero_page())
    others += kernel_.profile().geometry.pages_per_pmd();
  const std::uint64_t used = stats.pgalloc_normal - stats.pgfree;
  return used > others ? used - others : 0;
}

bool Vmscan::charge(const AllocRequest& request) {
  const std::uint64_t max =
      kernel_.config().memcg_max >> kernel_.profile().geometry.page_shift;
  const std::uint64_t pages = std::uint64_t{1} << request.order;
  Task* const task = kernel_.engine().current();
  if (task == nullptr || is_reclaimer(*task) || request.type != MigrateType::kMovable)
    return true;
  const bool may_block = request.reclaim == GfpReclaim::kDirect ||
                         request.reclaim == GfpReclaim::kDirectNoretry;
  for (unsigned tries = 0; memcg_usage() + pages > max; ++tries) {
    if (!may_block) return false;
    kernel_.mm_shared().lrus.start();
    const std::uint64_t freed =
        try_to_free_pages(*task, request.preferred_node, ScanControl::For::kMemcg, pages);
    task->sync();
    if (memcg_usage() + pages <= max) break;
    if (request.order > 3 || request.reclaim == GfpReclaim::kDirectNoretry) return false;
    if (freed == 0 && !out_of_memory(*task)) return false;
    if (tries >= kMaxReclaimRetries && !out_of_memory(*task)) return false;
  }
  return true;
}

MaybePfn Vmscan::alloc_slowpath(const AllocRequest& request, int cpu) {
  PhysMem& phys = kernel_.phys();
  Task* const task = kernel_.engine().current();
  if (task != nullptr && request.reclaim != GfpReclaim::kNone)
    for (int node = 0; node < phys.nodes(); ++node)
      if (!request.this_node_only || node == request.preferred_node)
        wakeup_kswapd(node, request.order);
  if (const auto page = phys.try_alloc(request, cpu, PhysMem::Mark::kMin)) return page;
  if (request.type == MigrateType::kUnmovable) {
    // Model: kernel memory may use the reserve, as if it were __GFP_HIGH; it never waits.
    phys.drain_all_pages();
    return phys.try_alloc(request, cpu, PhysMem::Mark::kNone);
  }
  if (request.reclaim == GfpReclaim::kNone || request.reclaim == GfpReclaim::kKswapd)
    return std::nullopt;
  if (task == nullptr || is_reclaimer(*task)) {
    phys.drain_all_pages();
    return phys.try_alloc(request, cpu,
                          task == nullptr ? PhysMem::Mark::kMin : PhysMem::Mark::kNone);
  }
  return direct(*task, request, cpu);
}

bool Vmscan::is_reclaimer(const Task& task) const {
  return std::ranges::find(reclaimers_, &task) != reclaimers_.end() ||
         std::ranges::any_of(nodes_,
                             [&](const NodeState& n) { return n.kswapd.task == &task; });
}

// should_reclaim_retry(): not if even all that could be reclaimed wouldn't do.
bool Vmscan::may_retry(unsigned no_progress) const {
  if (no_progress > kMaxReclaimRetries) return false;
  const Lru& lru = kernel_.mm_shared().lrus;
  const PhysMem& phys = kernel_.phys();
  const std::uint64_t swap = kernel_.mm_shared().swap.free_pages();
  for (int node = 0; node < phys.nodes(); ++node) {
    std::uint64_t available = phys.nr_free_pages(node) +
                              lru.size(node, LruList::kInactiveFile) +
                              lru.size(node, LruList::kActiveFile);
    available += std::min(swap, lru.size(node, LruList::kInactiveAnon) +
                                    lru.size(node, LruList::kActiveAnon));
    if (available > phys.watermarks(node).min) return true;
  }
  return false;
}

MaybePfn Vmscan::direct(Task& task, const AllocRequest& request, int cpu) {
  PhysMem& phys = kernel_.phys();
  constexpr unsigned kCostlyOrder = 3;
  const bool costly = request.order > kCostlyOrder;
  const bool noretry = request.reclaim == GfpReclaim::kDirectNoretry;
  const bool compacts = request.order > 0 && kernel_.config().compaction;
  CompactResult result = CompactResult::kSkipped;
  if (compacts && costly) {
    const auto page = compact_direct(task, request, cpu, CompactMode::kAsync, result);
    if (page) return page;
    if (noretry &&
        (result == CompactResult::kSkipped || result == CompactResult::kDeferred))
      return std::nullopt;
  }
  kernel_.mm_shared().lrus.start();
  for (unsigned no_progress = 0;;) {
    const std::uint64_t freed =
        try_to_free_pages(task, request.preferred_node, ScanControl::For::kDirect,
                          std::uint64_t{1} << request.order);
    task.sync();
    if (const auto page = phys.try_alloc(request, cpu, PhysMem::Mark::kMin)) return page;
    phys.drain_all_pages();
    if (const auto page = phys.try_alloc(request, cpu, PhysMem::Mark::kMin)) return page;
    if (compacts) {
      const auto mode = noretry ? CompactMode::kAsync : CompactMode::kSyncLight;
      if (const auto page = compact_direct(task, request, cpu, mode, result)) return page;
    }
    if (costly || noretry) return std::nullopt;
    if (freed > 0) {
      no_progress = 0;
      for (NodeState& state : nodes_) state.failures = 0;
    } else {
      ++no_progress;
      // should_reclaim_retry(): most of what there is may be on its way to swap.
      Swap& swap = kernel_.mm_shared().swap;
      const Lru& lru = kernel_.mm_shared().lrus;
      if (swap.queues() &&
          2 * swap.writing() > lru.size(request.preferred_node, LruList::kInactiveAnon) +
                                   lru.size(request.preferred_node, LruList::kActiveAnon))
        swap.congestion_wait(task, Duration::ms(100));
    }
    if (may_retry(no_progress)) continue;
    if (!out_of_memory(task)) return std::nullopt;
  }
}

}  // namespace faultline::kernel
