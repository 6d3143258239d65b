// SPDX-License-Identifier: Apache-2.0
#include "allocator/ptmalloc/release.h"

#include <array>

namespace faultline::alloc {
namespace {

// Counted on 2.36: pairs of 138 (cache hit both ways), 320 (2000 bytes cut from and merged
// into top), 430 (1..4000 bytes at random); the parts sum to these with about 9 of loop and
// call stub.
constexpr PathCosts kCosts236 = {.malloc_hit = 41,
                                 .malloc_entry = 38,
                                 .arena_top = 113,
                                 .arena_bins = 200,
                                 .arena_quick = 70,
                                 .free_entry = 24,
                                 .free_hit = 64,
                                 .free_fast = 70,
                                 .free_arena = 102,
                                 .unlink = 34,
                                 .trim_attempt = 25,
                                 .lock_pair = 24,
                                 .calloc_extra = 40};

// Pairs of 70, 282 and 390 on 2.43; split in the proportions of 2.36.
constexpr PathCosts kCosts243 = {.malloc_hit = 22,
                                 .malloc_entry = 32,
                                 .arena_top = 98,
                                 .arena_bins = 180,
                                 .arena_quick = 62,
                                 .free_entry = 12,
                                 .free_hit = 27,
                                 .free_fast = 0,
                                 .free_arena = 102,
                                 .unlink = 34,
                                 .trim_attempt = 25,
                                 .lock_pair = 26,
                                 .calloc_extra = 12};

constexpr ReleaseProfile make_2_23() {
  ReleaseProfile r;
  r.name = "2.23";
  r.title = "glibc 2.23 (2016), before the thread cache";
  r.tcache = TcacheCreation::kNever;
  r.tcache_key = TcacheKey::kNone;
  r.tcache_bins = r.tcache_slots = r.tcache_depth = 0;
  r.malloc_state_bytes = 2192;  // have_fastchunks became a word of its own in 2.27
  r.heap_info_bytes = 32;
  r.heaps_noreserve = true;
  r.single_thread_path = false;
  r.has_tunables = false;
  r.max_request = UINT64_MAX - 64;  // to 2.29: all but the last 2 * MINSIZE are tried
  r.costs = kCosts236;
  return r;
}

// Model: arenas are let go as in 2.23, which counts their threads; 2.21 never lets one go
// while a thread of it lives.
constexpr ReleaseProfile make_2_21() {
  ReleaseProfile r = make_2_23();
  r.name = "2.21";
  r.title = "glibc 2.21 (2015), the last whose thread heaps are trimmed at every free";
  r.heap_trim_always = true;
  return r;
}

// M. Kosaki's hack on the glibc of its time, which trims as 2.21 does.
constexpr ReleaseProfile make_vrange_as_posted() {
  ReleaseProfile r = make_2_21();
  r.name = "2.21-vrange-as-posted";
  r.title = "glibc that marks what it trims volatile and never un-marks it (April 2013)";
  r.give_back = GiveBack::kVrangeAsPosted;
  return r;
}

constexpr ReleaseProfile make_vrange() {
  ReleaseProfile r = make_2_21();
  r.name = "2.21-vrange";
  r.title = "the same, but un-marked before it is used again";
  r.give_back = GiveBack::kVrange;
  return r;
}

constexpr ReleaseProfile make_2_26() {
  ReleaseProfile r = make_2_23();
  r.name = "2.26";
  r.has_tunables = true;
  r.title = "glibc 2.26 (2017), the first with the thread cache";
  r.tcache = TcacheCreation::kFirstCall;
  r.tcache_bins = r.tcache_slots = 64;
  r.tcache_depth = 7;
  r.tcache_count_bytes = 1;  // 16-bit counters came with 2.30
  r.malloc_state_bytes = 2200;
  return r;
}

constexpr ReleaseProfile make_2_36() {
  ReleaseProfile r;
  r.name = "2.36";
  r.title = "glibc 2.36 (2022), Debian 12";
  r.heaps_noreserve = true;
  r.mmap_fallback = MmapFallback::kSwapped;
  r.huge_page_tunable = HugePageTunable::kHugetlb;
  r.costs = kCosts236;
  return r;
}

// The series as first posted, on what was to be 2.35.
constexpr ReleaseProfile make_rfc_2021() {
  ReleaseProfile r = make_2_36();
  r.name = "rfc-2021-thp_pagesize";
  r.title = "glibc with the thp_pagesize series of August 2021";
  r.heap_info_bytes = 32;
  r.mmap_fallback = MmapFallback::kAtLeastMiB;
  r.huge_page_tunable = HugePageTunable::kThpPagesize;
  return r;
}

constexpr ReleaseProfile make_2_39() {
  ReleaseProfile r = make_2_36();
  r.name = "2.39";
  r.title = "glibc 2.39 (2024), Ubuntu 24.04";
  r.heaps_noreserve = false;
  r.mmap_fallback = MmapFallback::kAtLeastMiB;
  r.realloc_fit = ReallocFit::kKeepIfTight;
  r.memalign_cuts_to_tcache = false;
  r.hugetlb_sets_threshold = true;
  r.strict_tunables = true;
  return r;
}

constexpr ReleaseProfile make_2_43() {
  ReleaseProfile r = make_2_39();
  r.name = "2.43-x86";
  r.title = "glibc 2.43 (2026), x86-64";
  r.tcache = TcacheCreation::kFirstUse;
  r.init_at_start = true;
  r.tcache_slots =
      76;  // 12 more classes by powers of two, unused unless tcache_max is raised
  r.tcache_depth = 16;
  r.tcache_padded_twice = true;
  r.calloc_from_tcache = true;
  r.fastbins = false;
  r.frees_to_smallbin = true;
  r.old_top_to_tcache = false;
  r.realloc_cuts_to_tcache = false;
  r.malloc_state_bytes = 2112;
  r.mmap_overhead = 16;
  r.mmap_hidden = 16;
  r.thp_in_always = true;
  r.thp_heaps = ThpHeaps::kAdvisedFirst;
  r.first_break_unknown = false;
  r.advice_from_below = false;
  r.mremap_advises = false;
  r.hugetlb_sizes_heaps = false;
  r.hugetlb_marks_blocks = true;
  r.costs = kCosts243;
  return r;
}

constexpr ReleaseProfile make_2_43_aarch64() {
  ReleaseProfile r = make_2_43();
  r.name = "2.43-aarch64";
  r.title = "glibc 2.43 (2026), AArch64: THP sizing by default";
  r.thp_by_default = true;
  return r;
}

constexpr ReleaseProfile make_2_44() {
  ReleaseProfile r = make_2_43();
  r.name = "2.44";
  r.title = "glibc 2.44 (2026)";
  r.arena_limit = ArenaLimit::kOnePerCpu;
  r.tcache_from_unsorted = false;
  r.thp_limit = std::uint64_t{32} << 20;
  r.thp_heaps = ThpHeaps::kAdvisedEach;
  r.tcache_padded_twice = false;
  return r;
}

constexpr ReleaseProfile make_2_44_aarch64() {
  ReleaseProfile r = make_2_44();
  r.name = "2.44-aarch64";
  r.title = "glibc 2.44 (2026), AArch64: THP sizing and advice by default";
  r.thp_by_default = true;
  r.thp_default_advises = true;
  return r;
}

constexpr std::array kReleases = {
    make_2_21(), make_vrange_as_posted(), make_vrange(), make_2_23(),
    make_2_26(), make_rfc_2021(),         make_2_36(),   make_2_39(),
    make_2_43(), make_2_43_aarch64(),     make_2_44(),   make_2_44_aarch64()};

}  // namespace

std::span<const ReleaseProfile> releases() {
  return kReleases;
}

const ReleaseProfile* find_release(std::string_view name) {
  for (const ReleaseProfile& r : kReleases)
    if (r.name == name) return &r;
  return nullptr;
}

}  // namespace faultline::alloc
