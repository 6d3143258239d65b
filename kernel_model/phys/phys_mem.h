// SPDX-License-Identifier: Apache-2.0
//
// Physical memory: NUMA nodes, each one zone with buddy free lists up to the machine's largest
// order, per-CPU lists in front of them, watermarks.
//
// Stands for: mm/page_alloc.c (v4.15-6.18).  Model: one zone a node (no ZONE_DMA).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

// The reclaim bits of gfp_t (kernel facts 1.3).
enum class GfpReclaim : std::uint8_t { kNone, kKswapd, kDirectNoretry, kDirect };

struct AllocRequest {
  unsigned order = 0;
  int preferred_node = 0;
  bool this_node_only = false;      // __GFP_THISNODE
  GfpReclaim reclaim = GfpReclaim::kDirect;
};

// struct page, as much of it as the model needs.  Per frame: keep it small (16 bytes).
struct Page {
  enum Flags : std::uint16_t { kAnon = 1, kHead = 2, kTail = 4, kLazyfree = 8, kLru = 16, kActive = 32,
    kSwapbacked = 64, kDirty = 128, kDeferredSplit = 256, kZeroPage = 512, kTable = 1024, kBuddy = 2048 };
  std::uint16_t flags = 0;
  std::uint8_t order = 0;           // of a head page
  std::uint8_t node = 0;
  std::int32_t mapcount = 0;        // PTE mappings of this page; PMD mappings are on the head
  std::int32_t refcount = 0;
  std::uint32_t link = 0;           // free list or LRU link
};

class PhysMem {
 public:
  PhysMem(const arch::Profile& profile, const KernelConfig& config);
  ~PhysMem();

  // One block of 1 << order frames, or nothing.  Tries the preferred node, then the others by
  // distance, each against its low, then its min watermark.  Charges nothing: costs are the caller's.
  [[nodiscard]] std::optional<Pfn> alloc_pages(const AllocRequest& request, int cpu);
  void free_pages(Pfn pfn, unsigned order, int cpu);

  [[nodiscard]] Page& page(Pfn pfn);
  [[nodiscard]] int node_of(Pfn pfn) const;

  [[nodiscard]] std::uint64_t total_pages() const;      // managed
  [[nodiscard]] std::uint64_t free_pages_of(int node) const;   // incl. those on pcp lists
  [[nodiscard]] std::uint64_t free_pages_total() const;
  [[nodiscard]] std::uint64_t free_blocks(int node, unsigned order) const;   // buddyinfo
  struct Watermarks { std::uint64_t min = 0, low = 0, high = 0; };
  [[nodiscard]] Watermarks watermarks(int node) const;  // in pages

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::kernel
