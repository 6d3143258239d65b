// SPDX-License-Identifier: Apache-2.0
//
// Physical memory: NUMA nodes, each one zone with buddy free lists up to the machine's
// largest order, per-CPU lists in front of them, watermarks.
//
// Stands for: mm/page_alloc.c (v4.15-6.18).  Model: one zone a node (no ZONE_DMA), lowmem
// reserve 0.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "kernel_model/phys/buddy.h"
#include "kernel_model/phys/page.h"
#include "kernel_model/phys/pcp.h"
#include "kernel_model/phys/watermarks.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

// The reclaim bits of gfp_t, as the defrag setting decides them for huge pages.
enum class GfpReclaim : std::uint8_t { kNone, kKswapd, kDirectNoretry, kDirect };

struct AllocRequest {
  unsigned order = 0;
  int preferred_node = 0;
  bool this_node_only = false;  // __GFP_THISNODE
  GfpReclaim reclaim = GfpReclaim::kDirect;
  MigrateType type =
      MigrateType::kMovable;  // page tables and other kernel memory: kUnmovable
};

// Frames [first, end).
struct Range32 {
  std::uint32_t first = 0, end = 0;
};

// Since the start, in base pages.
struct PhysStats {
  std::uint64_t pgalloc_normal = 0, pgfree = 0;
};

// What follows when an allocation finds too little: reclaim.  See mm/vmscan.h.
class SlowPath {
 public:
  // Less than the low watermark is free.
  virtual MaybePfn alloc_slowpath(const AllocRequest& request, int cpu) = 0;
  // May the memory cgroup have it?
  virtual bool charge(const AllocRequest& request) = 0;

 protected:
  ~SlowPath() = default;
};

class PhysMem {
 public:
  PhysMem(const arch::Profile& profile, const KernelConfig& config);
  ~PhysMem();
  PhysMem(const PhysMem&) = delete;
  PhysMem& operator=(const PhysMem&) = delete;

  // One block of 1 << order frames, or nothing.  Tries the preferred node, then the others
  // by distance, each against its low, then its min watermark.  The head page has refcount
  // 1, no flags, and its order and node set; the pages behind it are garbage.  Charges
  // nothing: costs are the caller's.
  [[nodiscard]] MaybePfn alloc_pages(const AllocRequest& request, int cpu);
  // What must stay free: a watermark, or nothing (PF_MEMALLOC).
  enum class Mark : std::uint8_t { kLow, kMin, kNone };
  // One attempt.
  [[nodiscard]] MaybePfn try_alloc(const AllocRequest& request, int cpu, Mark mark) {
    return get_page_from_freelist(request, cpu, mark);
  }
  // Up to `most` base pages of one node, as try_alloc() one after the other; answers how
  // many.  Their struct pages are garbage but for the node.
  std::uint32_t try_alloc_pages(int node, int cpu, Mark mark, Pfn* pages,
                                std::uint32_t most);
  // zone_watermark_ok(): more than `mark` pages are free, and a block of the order.
  [[nodiscard]] bool watermark_ok(int node, unsigned order, std::uint64_t mark) const {
    return watermark_ok(zone(node), order, mark);
  }
  // `charges`: there is a memory cgroup with a limit.
  void set_slow_path(SlowPath& slow_path, bool charges) {
    slow_path_ = &slow_path;
    charges_ = charges;
  }
  // `order` as it was allocated, or smaller pieces of a block that was split.
  void free_pages(Pfn pfn, unsigned order, int cpu);
  // Blocks that have gone between the buddy lists of the node and others' (per-CPU lists)
  // since the last call: what zone->lock was held for.
  [[nodiscard]] std::uint64_t take_zone_work(int node) {
    return std::exchange(zones_[static_cast<std::size_t>(node)].work, 0);
  }
  // Empties the per-CPU lists of every CPU.
  void drain_all_pages();

  [[nodiscard]] Page& page(Pfn pfn) { return frames_[pfn]; }
  [[nodiscard]] const Page& page(Pfn pfn) const { return frames_[pfn]; }
  [[nodiscard]] int node_of(Pfn pfn) const { return node_of_block_[pfn.v >> max_order_]; }
  // --- for compaction
  [[nodiscard]] Range32 frames_of(int node) const {
    return {zone(node).buddy.start().v, zone(node).buddy.end().v};
  }
  [[nodiscard]] MigrateType type_of(Pfn pfn) const {
    return zone(node_of(pfn)).buddy.type_of(pfn);
  }
  [[nodiscard]] bool free_blocks_at_least(int node, unsigned order) const {
    return zone(node).buddy.has_block(order);
  }
  // __isolate_free_page(): the free block that begins there is on no list any more.
  void isolate_free_block(Pfn head) {
    zones_[static_cast<std::size_t>(node_of(head))].buddy.isolate(head);
  }
  // One page, past the per-CPU lists.
  void free_to_buddy(Pfn pfn) {
    zones_[static_cast<std::size_t>(node_of(pfn))].buddy.free(pfn, 0);
  }

  [[nodiscard]] std::size_t frames() const { return frames_.size(); }
  [[nodiscard]] int nodes() const { return static_cast<int>(zones_.size()); }

  [[nodiscard]] std::uint64_t total_pages() const;  // managed
  [[nodiscard]] std::uint64_t total_pages_of(int node) const;
  [[nodiscard]] std::uint64_t free_pages_of(int node) const;  // incl. those on pcp lists
  [[nodiscard]] std::uint64_t free_pages_total() const;
  [[nodiscard]] std::uint64_t nr_free_pages(
      int node) const;  // NR_FREE_PAGES: without pcp lists
  [[nodiscard]] std::uint64_t nr_free_pages() const;
  [[nodiscard]] std::uint64_t free_blocks(int node, unsigned order) const;  // buddyinfo
  using Watermarks = kernel::Watermarks;
  [[nodiscard]] Watermarks watermarks(int node) const;  // in pages
  [[nodiscard]] std::uint64_t min_free_kbytes() const { return min_free_kbytes_; }
  [[nodiscard]] unsigned pageblock_order() const { return pageblock_order_; }
  [[nodiscard]] const PcpSizes& pcp_sizes_of(int node) const;
  [[nodiscard]] const PhysStats& stats() const { return stats_; }

  // Aborts if the free lists are not sound.
  void check() const;

 private:
  struct Zone {
    Buddy buddy;
    std::uint64_t managed;
    Watermarks marks;
    PcpSizes pcp;
    std::vector<int> fallback;  // this node, then the others, nearest first
    std::uint64_t work = 0;     // see take_zone_work()
  };
  void build_zones(const arch::Profile& profile, const KernelConfig& config);
  void size_zones(const arch::Profile& profile, const KernelConfig& config);
  [[nodiscard]] PerCpuPages& pcp(int cpu, int node) {
    return pcps_[static_cast<std::size_t>(cpu) * zones_.size() +
                 static_cast<std::size_t>(node)];
  }
  [[nodiscard]] MaybePfn get_page_from_freelist(const AllocRequest& request, int cpu,
                                                Mark mark);
  [[nodiscard]] MaybePfn alloc_slowpath(const AllocRequest& request, int cpu);
  [[nodiscard]] MaybePfn rmqueue(int node, unsigned order, MigrateType type, int cpu);
  [[nodiscard]] static std::uint64_t kept(const Zone& zone, Mark mark);
  [[nodiscard]] static bool watermark_ok(const Zone& zone, unsigned order,
                                         std::uint64_t mark);
  [[nodiscard]] const Zone& zone(int node) const {
    return zones_[static_cast<std::size_t>(node)];
  }

  SlowPath* slow_path_ = nullptr;
  bool charges_ = false;
  unsigned max_order_, pageblock_order_;
  bool group_by_mobility_;
  std::uint64_t min_free_kbytes_ = 0;
  FrameTable frames_;
  std::vector<std::uint8_t> node_of_block_;  // of each max-order block
  std::vector<Zone> zones_;                  // one a node
  std::vector<PerCpuPages> pcps_;            // [cpu][node]
  std::uint64_t free_at_start_ = 0;
  PhysStats stats_;
};

}  // namespace faultline::kernel
