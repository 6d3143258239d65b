// SPDX-License-Identifier: Apache-2.0
//
// What a kernel version and its settings decide: one switch a mechanism, so that each can
// be turned alone.  Presets (kernel_model/presets/*.toml) are tables of these switches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/locks.h"
#include "sim/time.h"

namespace faultline::kernel {

enum class ThpEnabled : std::uint8_t { kAlways, kMadvise, kNever };
enum class ThpDefrag : std::uint8_t { kAlways, kDefer, kDeferMadvise, kMadvise, kNever };
// Which anonymous mappings mmap places on a PMD boundary.
enum class ThpMmapAlign : std::uint8_t { kNo, kAtLeastPmd, kMultipleOfPmd };
enum class SplitPtlock : std::uint8_t { kByArch, kYes, kNo };
// Rules of the per-VMA lock; kNo before 6.4.
enum class VmaLockRule : std::uint8_t { kNo, k6_4, k6_8, k6_12, k6_18 };
// Overcommit mode 0: a request is refused if larger than what is free now, or than RAM +
// swap.
enum class OvercommitHeuristic : std::uint8_t { kFreeNow, kTotalRam };
enum class ZeroPmdWrite : std::uint8_t { kAllocThp, kSplit };
// How far VmRSS may lag: per-task caches folded in every 64 faults (to 6.1), a per-CPU
// counter read approximately (6.2-6.17), or exact sums (6.18).
enum class RssStatRule : std::uint8_t { kTaskCache, kPercpu, kExact };
// What puts a huge page on the deferred-split queue: any of its pages unmapped, or (6.12)
// only if others stay mapped.
enum class DeferredSplitRule : std::uint8_t { kAnyUnmap, kPartiallyMapped };
// mprotect makes exclusive dirty anonymous pages writable at once, so that no write fault
// follows: never, base pages (6.0), huge pages too (6.2).
enum class MprotectWritable : std::uint8_t { kNo, kBase, kHuge };
// A write to a read-only anonymous page keeps the page if nobody else maps it (to 5.8), if
// nobody else holds a reference, be it another piece's of its huge page (5.9-5.18), or if
// no fork has shared it since it was last known to be the mm's own (5.19).
enum class CowReuse : std::uint8_t { kMapcount, kRefcount, kExclusive };
// Volatile ranges, by version of the patches that were never merged: none (every released
// kernel); a flag of the VMA (v4 to v6); or a tree of ranges beside the VMAs (v7 to v10).
enum class VrangeVersion : std::uint8_t { kNone, kVma, k7, k8, k9, k10 };
[[nodiscard]] constexpr bool has_vrange_tree(VrangeVersion v) {
  return v >= VrangeVersion::k7;
}
// An access to a purged page whose range is still volatile: SIGBUS, or, as it was only
// discussed, a page of zeros.
enum class VrangeFault : std::uint8_t { kSigbus, kZeroFill };
// What MADV_FREE does: pages stay on the anonymous list, and without free swap it is
// MADV_DONTNEED (4.5), or they join the inactive file list (4.12).
enum class MadvFreeRule : std::uint8_t { k4_5, k4_12 };
// What khugepaged collapses: ranges whose present pages are all writable base pages of this
// process alone (3.9); read-only ones and the zero page, too (4.1); pieces of huge pages
// and pages shared by fork (5.8); and ranges without any writable page (6.18).
enum class CollapseRule : std::uint8_t { k3_9, k4_1, k5_8, k6_18 };
// Per-CPU page lists: order 0 with batch 31 (4 KiB pages), the same with batch 63, or
// orders 0-3 and the pageblock order with sizes from the low watermark.
enum class PcpRules : std::uint8_t { k4_15, k4_19, k5_14 };

// hugepagesz= and hugepages= at boot, and nr_overcommit_hugepages.
struct HugetlbSetting {
  std::uint64_t size = 0;                    // bytes
  std::uint64_t pages = 0;                   // spread over the nodes
  std::vector<std::uint64_t> pages_of_node;  // or so many on each
  std::uint64_t overcommit = 0;
};

struct KernelConfig {
  std::string preset;  // "4.15"
  // major * 1000 + minor of the preset, to hold against "since 5.2" in a profile.
  [[nodiscard]] unsigned version() const { return kernel_version(preset); }
  [[nodiscard]] static unsigned kernel_version(std::string_view text);
  // Locks.
  RwSemRules rwsem = RwSemRules::k5_11;  // key: locks.rwsem = "3.7" | "4.15" | …
  VmaLockRule per_vma_lock =
      VmaLockRule::kNo;  // key: locks.per_vma_lock = "no" | "6.4" | …
  SplitPtlock split_pmd_ptlock = SplitPtlock::kByArch;  // key: locks.split_pmd_ptlock
  bool munmap_downgrade = true;                         // key: mm.munmap_downgrade (4.20)
  bool mutex_spin = true;  // key: locks.mutex_spin (CONFIG_MUTEX_SPIN_ON_OWNER): off in
                           // kernels that check their mutexes (DEBUG_MUTEXES)
  bool madvise_vma_lock = false;  // key: locks.madvise_vma_lock (6.18): DONTNEED, FREE
  // Mappings.
  bool brk_full_merge = false;  // key: mm.brk_full_merge (before 6.1): brk may join the bss
  bool merge_into_unfaulted = false;  // key: mm.merge_into_unfaulted (6.16): a faulted VMA
                                      // may join a neighbour that has no anon_vma
  bool mmap_prefers_next =
      false;  // key: mm.mmap_prefers_next (6.1-6.11): a new mapping asks
              // the VMA above first, and its owner must suit the one below
  bool mmap_charges_before_unmap =
      false;                // key: mm.mmap_charges_before_unmap (6.12): a refused
                            // MAP_FIXED leaves what it would have replaced
  bool pt_reclaim = false;  // key: mm.pt_reclaim (6.14, x86-64): MADV_DONTNEED of a whole
                            // PMD range frees the PTE table it leaves empty
  bool mprotect_uncharges =
      false;  // key: mm.mprotect_uncharges (6.7): unfaulted, made read-only
  MadvFreeRule madv_free = MadvFreeRule::k4_12;  // key: mm.madv_free
  bool madv_free_drops_swapped = true;  // key: mm.madv_free_drops_swapped (as merged)
  bool madv_free_deactivates = true;    // key: mm.madv_free_deactivates (4.5): its pages
                                        // leave the active list
  bool madv_free_falls_back = false;    // key: mm.madv_free_falls_back (never merged):
                                        // MADV_DONTNEED when little memory is free
  // Volatile ranges.
  VrangeVersion vrange = VrangeVersion::kNone;      // key: vrange
  VrangeFault vrange_fault = VrangeFault::kSigbus;  // key: vrange_fault
  bool vrange_reports_pressure = false;  // key: vrange_reports_pressure: VOLATILE answers 1
  // Huge pages.
  ThpEnabled thp_enabled = ThpEnabled::kAlways;  // key: transparent_hugepage.enabled
  ThpDefrag thp_defrag = ThpDefrag::kMadvise;    // key: transparent_hugepage.defrag
  bool use_zero_page = true;                     // key: transparent_hugepage.use_zero_page
  ThpMmapAlign thp_mmap_align = ThpMmapAlign::kNo;
  // mTHP (6.8): sizes whose hugepages-<size>kB/enabled is always, madvise, inherit; the
  // others are never, and the PMD's size is inherit.
  std::vector<std::uint64_t> mthp_always, mthp_madvise, mthp_inherit;
  bool thp_strictly_local = false;  // 4.15: __GFP_THISNODE, no retry elsewhere
  ZeroPmdWrite zero_pmd_write = ZeroPmdWrite::kSplit;
  ZeroPmdWrite cow_huge =
      ZeroPmdWrite::kSplit;  // a shared THP written: copy it whole, or split
  DeferredSplitRule deferred_split = DeferredSplitRule::kAnyUnmap;
  bool map_stack_nohugepage = false;      // 6.7
  bool thp_fault_fallback_charge = true;  // the counter exists
  MprotectWritable mprotect_writable = MprotectWritable::kBase;
  CowReuse cow_reuse = CowReuse::kExclusive;   // key: mm.cow_reuse
  CollapseRule collapse = CollapseRule::k5_8;  // key: transparent_hugepage.collapse
  // khugepaged: does the thread run, and its knobs; no value is what khugepaged_init()
  // derives from the size of a huge page.
  bool khugepaged_run = true;                     // key: khugepaged.run
  bool khugepaged_defrag = true;                  // key: khugepaged.defrag
  std::uint64_t khugepaged_scan_sleep = 10'000;   // key: khugepaged.scan_sleep_millisecs
  std::uint64_t khugepaged_alloc_sleep = 60'000;  // key: …alloc_sleep_millisecs
  std::optional<std::uint64_t> khugepaged_pages_to_scan;  // key: khugepaged.pages_to_scan
  std::optional<std::uint64_t> khugepaged_max_ptes_none, khugepaged_max_ptes_swap,
      khugepaged_max_ptes_shared;
  // 6.12: huge pages wait on the deferred-split list from their first mapping on, and the
  // shrinker splits those that are mostly zeros.
  bool shrink_underused = false;  // key: transparent_hugepage.shrink_underused
  // Accounting.
  RssStatRule rss_stat = RssStatRule::kTaskCache;
  bool pgfault_counts_retries = true;  // to 6.3: each entry of handle_mm_fault
  OvercommitHeuristic overcommit = OvercommitHeuristic::kTotalRam;
  unsigned overcommit_memory = 0;  // key: sysctl.vm.overcommit_memory
  unsigned overcommit_ratio = 50;  // key: sysctl.vm.overcommit_ratio (mode 2)
  std::uint64_t user_reserve_kbytes =
      0;  // 0: as derived, min(3 % of free memory, 128 MiB) (mode 2)
  unsigned max_map_count = 65530;     // key: sysctl.vm.max_map_count
  unsigned stack_guard_gap = 256;     // pages; boot option
  std::uint64_t min_free_kbytes = 0;  // 0: as the kernel derives it, raised for THP
  // Physical memory.
  PcpRules pcp = PcpRules::k5_14;  // key: phys.pcp
  unsigned min_free_kbytes_cap =
      262'144;  // of the derived value, before it is raised for THP
  unsigned watermark_scale_factor = 10;  // key: sysctl.vm.watermark_scale_factor
  unsigned lru_batch = 15;      // PAGEVEC_SIZE: pages that wait per CPU for the LRU
  unsigned release_batch = 32;  // key: phys.release_batch (14 to 3.17): pages that
                                // release_pages() takes off the LRU under one lru_lock
  // Reclaim.
  bool anon_starts_active = false;   // key: phys.anon_starts_active (before 5.9): new
                                     // anonymous pages go on the active list
  unsigned swappiness = 60;          // key: sysctl.vm.swappiness
  unsigned page_cluster = 3;         // key: sysctl.vm.page_cluster: log2 of swap read-ahead
  unsigned extfrag_threshold = 500;  // key: sysctl.vm.extfrag_threshold
  bool compaction = true;            // key: phys.compaction (CONFIG_COMPACTION)
  unsigned uptime_hours =
      0;  // key: phys.uptime_hours: how long memory has been fragmenting
  std::uint64_t swap_size = 0;                                           // key: swap.size
  Duration swap_read = Duration::us(90), swap_write = Duration::us(25);  // of one page
  unsigned swap_queue_depth =
      0;  // key: swap.queue_depth: pages that may wait for the device while reclaim goes
          // on; 0: no queue, reclaim waits for its writes
  std::uint64_t memcg_max =
      0;  // key: memcg.max: memory.max of the program's cgroup; 0: none
  // Files and hugetlb.
  std::uint64_t fault_around_bytes = 65536;
  std::uint64_t read_ahead_bytes = 131'072;
  Duration disk_read = Duration::us(100);     // latency of one read from a file's device
  std::vector<HugetlbSetting> hugetlb_pools;  // key: hugetlb.pools
  std::uint64_t nr_hugepages = 0;             // key: sysctl.vm.nr_hugepages: default size
  std::uint64_t nr_overcommit_hugepages = 0;
};

}  // namespace faultline::kernel
