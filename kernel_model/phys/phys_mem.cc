// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/phys_mem.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline::kernel {
namespace {

// Frames of a node's address range: whole largest blocks, so that no block spans two nodes.
std::uint64_t span_frames(const arch::NumaNode& node, const arch::Geometry& geometry) {
  const std::uint64_t block = std::uint64_t{1} << geometry.max_order;
  const std::uint64_t frames = node.memory_bytes >> geometry.page_shift;
  return (frames + block - 1) / block * block;
}

std::uint64_t all_frames(const arch::Profile& profile) {
  std::uint64_t frames = 0;
  for (const auto& node : profile.nodes) frames += span_frames(node, profile.geometry);
  return frames;
}

// Stands for: build_zonelists(): nearest first; of equals the next higher node first.
std::vector<int> fallback_order(const arch::Profile& profile, int node) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(profile.nodes.size()); ++i) order.push_back(i);
  if (profile.node_distance.empty()) {
    std::rotate(order.begin(), order.begin() + node, order.end());
    return order;
  }
  const auto& row = profile.node_distance[static_cast<std::size_t>(node)];
  const auto value = [&](int other) {
    return other == node ? -1
                         : row[static_cast<std::size_t>(other)] + (other < node ? 1 : 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return value(a) < value(b); });
  return order;
}

// Free blocks by order after some hours of use: kernel pages that can't move have come to
// lie in a share of the pageblocks that is half after a day, and grows to all of them.
// Model: one such page in a pageblock, which leaves one free block of each smaller order;
// the half-life is assumed.
std::vector<std::uint64_t> blocks_after(unsigned hours, std::uint64_t free_frames,
                                        unsigned max_order, unsigned pageblock_order) {
  constexpr std::uint64_t kHalf = 24;
  const std::uint64_t pageblocks = free_frames >> pageblock_order;
  const std::uint64_t polluted = pageblocks * hours / (hours + kHalf);
  std::vector<std::uint64_t> blocks(max_order + 1);
  // Neighbours that are both clean are one block, order by order.
  std::uint64_t clean = pageblocks - polluted;
  for (unsigned order = pageblock_order; order < max_order; ++order) {
    const std::uint64_t pairs = clean * kHalf / (hours + kHalf) / 2;
    blocks[order] = clean - 2 * pairs;
    clean = pairs;
  }
  blocks[max_order] += clean;
  for (unsigned order = 0; order < pageblock_order; ++order) blocks[order] += polluted;
  return blocks;
}

unsigned cpus_of(const arch::Profile& profile, int node) {
  const auto n = std::count(profile.node_of_cpu.begin(), profile.node_of_cpu.end(), node);
  return n == 0 ? profile.cpus : static_cast<unsigned>(n);
}

}  // namespace

PhysMem::PhysMem(const arch::Profile& profile, const KernelConfig& config)
    : max_order_(profile.geometry.max_order),
      pageblock_order_(std::min(profile.geometry.pmd_order(), max_order_)),
      frames_(all_frames(profile)) {
  constexpr std::uint64_t kAllMigrateTypes = 4;  // MIGRATE_TYPES without CMA, isolation
  group_by_mobility_ = frames_.size() >= kAllMigrateTypes << pageblock_order_;
  build_zones(profile, config);
  size_zones(profile, config);
  pcps_.resize(std::size_t{profile.cpus} * zones_.size());
  free_at_start_ = nr_free_pages();
}

PhysMem::~PhysMem() = default;

void PhysMem::build_zones(const arch::Profile& profile, const KernelConfig& config) {
  std::uint64_t start = 0;
  zones_.reserve(profile.nodes.size());
  for (int n = 0; n < static_cast<int>(profile.nodes.size()); ++n) {
    const arch::NumaNode& node = profile.nodes[static_cast<std::size_t>(n)];
    const std::uint64_t managed = node.memory_bytes >> profile.geometry.page_shift;
    const std::uint64_t free =
        std::min(node.free_bytes >> profile.geometry.page_shift, managed);
    FAULTLINE_CHECK_LE(start + managed, std::uint64_t{UINT32_MAX});
    const std::uint64_t span = span_frames(node, profile.geometry);
    std::vector<std::uint64_t> blocks = node.free_blocks;
    if (blocks.empty() && config.uptime_hours > 0)
      blocks = blocks_after(config.uptime_hours, free, max_order_, pageblock_order_);
    const bool fragmented = !blocks.empty();
    const Pfn first{static_cast<std::uint32_t>(start)};
    // buddyinfo speaks of the whole range of addresses, MemTotal leaves out what boot
    // reserved.
    const Pfn end{static_cast<std::uint32_t>(start + (fragmented ? span : managed))};
    zones_.push_back(
        {Buddy(frames_, first, end, max_order_, pageblock_order_, group_by_mobility_),
         managed,
         {},
         {},
         fallback_order(profile, n),
         0});
    if (fragmented) {
      const bool placed = zones_.back().buddy.free_blocks(blocks);
      FAULTLINE_CHECK(placed);  // the profile was checked for it
    } else {
      zones_.back().buddy.free_from({static_cast<std::uint32_t>(end.v - free)});
    }
    start += span;
    node_of_block_.resize(start >> max_order_, static_cast<std::uint8_t>(n));
  }
}

void PhysMem::size_zones(const arch::Profile& profile, const KernelConfig& config) {
  std::vector<std::uint64_t> managed;
  for (const Zone& z : zones_) managed.push_back(z.managed);
  const WatermarkSetup setup = init_per_zone_wmark_min(profile.geometry, config, managed);
  min_free_kbytes_ = setup.min_free_kbytes;
  for (std::size_t n = 0; n < zones_.size(); ++n) {
    zones_[n].marks = setup.zones[n];
    zones_[n].pcp =
        pcp_sizes(config.pcp, profile.geometry.page_shift, pageblock_order_, managed[n],
                  setup.zones[n].low, cpus_of(profile, static_cast<int>(n)));
  }
}

// Stands for: zone_watermark_fast(), __zone_watermark_ok().
bool PhysMem::watermark_ok(const Zone& zone, unsigned order, std::uint64_t mark) {
  const std::uint64_t unusable = (std::uint64_t{1} << order) - 1;
  if (zone.buddy.nr_free() <= mark + unusable) return false;
  return order == 0 || zone.buddy.has_block(order);
}

MaybePfn PhysMem::rmqueue(int node, unsigned order, MigrateType type, int cpu) {
  Zone& z = zones_[static_cast<std::size_t>(node)];
  if (!group_by_mobility_) type = MigrateType::kUnmovable;
  const std::uint64_t before = z.buddy.nr_free();
  const MaybePfn page = PerCpuPages::keeps(z.pcp, order)
                            ? pcp(cpu, node).alloc(z.buddy, z.pcp, order, type)
                            : z.buddy.alloc(order, type);
  z.work += (before - z.buddy.nr_free()) >> order;
  return page;
}

std::uint64_t PhysMem::kept(const Zone& zone, Mark mark) {
  return mark == Mark::kLow ? zone.marks.low : mark == Mark::kMin ? zone.marks.min : 0;
}

MaybePfn PhysMem::get_page_from_freelist(const AllocRequest& request, int cpu, Mark mark) {
  for (const int node : zone(request.preferred_node).fallback) {
    if (watermark_ok(zone(node), request.order, kept(zone(node), mark))) {
      if (const auto pfn = rmqueue(node, request.order, request.type, cpu)) {
        Page& head = frames_[*pfn];
        head.flags = 0;
        head.order = static_cast<std::uint8_t>(request.order);
        head.node = static_cast<std::uint8_t>(node);
        head.mapcount = 0;
        head.refcount = 1;
        stats_.pgalloc_normal += std::uint64_t{1} << request.order;
        return pfn;
      }
    }
    if (request.this_node_only) break;
  }
  return std::nullopt;
}

// What is free changes only when a batch is fetched.
std::uint32_t PhysMem::try_alloc_pages(int node, int cpu, Mark mark, Pfn* pages,
                                       std::uint32_t most) {
  Zone& z = zones_[static_cast<std::size_t>(node)];
  const MigrateType type =
      group_by_mobility_ ? MigrateType::kMovable : MigrateType::kUnmovable;
  std::uint32_t done = 0;
  while (done < most && watermark_ok(z, 0, kept(z, mark))) {
    const std::uint64_t before = z.buddy.nr_free();
    const std::uint32_t n =
        pcp(cpu, node).alloc_pages(z.buddy, z.pcp, type, pages + done, most - done);
    if (n == 0) break;
    z.work += before - z.buddy.nr_free();
    done += n;
  }
  for (std::uint32_t i = 0; i < done; ++i)
    frames_[pages[i]].node = static_cast<std::uint8_t>(node);
  stats_.pgalloc_normal += done;
  return done;
}

MaybePfn PhysMem::alloc_pages(const AllocRequest& request, int cpu) {
  if (charges_ && !slow_path_->charge(request)) return std::nullopt;
  if (const auto pfn = get_page_from_freelist(request, cpu, Mark::kLow)) return pfn;
  if (slow_path_ != nullptr) return slow_path_->alloc_slowpath(request, cpu);
  return alloc_slowpath(request, cpu);
}

// Stands for: __alloc_pages_slowpath() without reclaim.
MaybePfn PhysMem::alloc_slowpath(const AllocRequest& request, int cpu) {
  if (const auto pfn = get_page_from_freelist(request, cpu, Mark::kMin)) return pfn;
  if (request.reclaim == GfpReclaim::kNone || request.reclaim == GfpReclaim::kKswapd)
    return std::nullopt;
  drain_all_pages();
  return get_page_from_freelist(request, cpu, Mark::kMin);
}

void PhysMem::free_pages(Pfn pfn, unsigned order, int cpu) {
  const int node = node_of(pfn);
  Zone& z = zones_[static_cast<std::size_t>(node)];
  FAULTLINE_CHECK(!(frames_[pfn].flags & (Page::kBuddy | Page::kPcp)));  // freed twice
  frames_[pfn].flags = Page::kPcp;
  stats_.pgfree += std::uint64_t{1} << order;
  if (order == 0 && pcp(cpu, node).free_page(z.pcp, pfn, z.buddy.type_of(pfn))) return;
  const std::uint64_t before = z.buddy.nr_free();
  if (PerCpuPages::keeps(z.pcp, order))
    pcp(cpu, node).free(z.buddy, z.pcp, pfn, order, z.buddy.type_of(pfn));
  else
    z.buddy.free(pfn, order);
  z.work += (z.buddy.nr_free() - before) >> order;
}

void PhysMem::drain_all_pages() {
  for (std::size_t i = 0; i < pcps_.size(); ++i) {
    Zone& z = zones_[i % zones_.size()];
    pcps_[i].drain(z.buddy, z.pcp);
  }
}

std::uint64_t PhysMem::total_pages() const {
  std::uint64_t n = 0;
  for (const Zone& z : zones_) n += z.managed;
  return n;
}
std::uint64_t PhysMem::total_pages_of(int node) const {
  return zone(node).managed;
}

std::uint64_t PhysMem::free_pages_of(int node) const {
  std::uint64_t n = zone(node).buddy.nr_free();
  for (std::size_t i = static_cast<std::size_t>(node); i < pcps_.size(); i += zones_.size())
    n += pcps_[i].count();
  return n;
}

// Asked for by every mmap: the sum over the nodes' lists and the CPUs' would be long.
std::uint64_t PhysMem::free_pages_total() const {
  return free_at_start_ + stats_.pgfree - stats_.pgalloc_normal;
}

std::uint64_t PhysMem::nr_free_pages(int node) const {
  return zone(node).buddy.nr_free();
}
std::uint64_t PhysMem::nr_free_pages() const {
  std::uint64_t n = 0;
  for (const Zone& z : zones_) n += z.buddy.nr_free();
  return n;
}

std::uint64_t PhysMem::free_blocks(int node, unsigned order) const {
  return zone(node).buddy.nr_free_blocks(order);
}
Watermarks PhysMem::watermarks(int node) const {
  return zone(node).marks;
}
const PcpSizes& PhysMem::pcp_sizes_of(int node) const {
  return zone(node).pcp;
}

void PhysMem::check() const {
  std::uint64_t free = 0;
  for (int node = 0; node < nodes(); ++node) {
    zone(node).buddy.check();
    free += free_pages_of(node);
  }
  FAULTLINE_CHECK_EQ(free, free_pages_total());
}

}  // namespace faultline::kernel
