// SPDX-License-Identifier: Apache-2.0
//
// A machine as data: page geometry, address-space layout, NUMA nodes, TLBs, named costs.
// Read from arch_profiles/data/*.toml with inheritance (`base = "arm64-64k"`), checked on
// reading: a Profile that exists is possible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arch_profiles/costs.h"

namespace faultline::arch {

enum class Isa : std::uint8_t {
  kX86_64,
  kArm64,
  kPpc64Hash,
  kPpc64Radix,
  kS390x,
  kRiscv64,
  kMips64,
  kSparc64,
  kLoongarch64
};

// One level of the page table, top (PGD) first; the last one is the PTE level.
struct TableLevel {
  std::string name;                   // pgd, p4d, pud, pmd, pte
  unsigned index_bits = 0;            // log2 of entries
  std::uint64_t table_bytes = 0;      // memory of one table (POWER: a fragment)
  std::uint64_t tables_per_page = 1;  // fragments that share one page and its ptl
};

struct Geometry {
  unsigned page_shift = 12;
  unsigned pmd_shift = 21;  // a PMD entry maps 1 << pmd_shift bytes
  unsigned va_bits = 47;    // user addresses are below 1 << va_bits
  unsigned pa_bits = 48;
  unsigned max_order = 10;  // largest buddy block, inclusive
  std::vector<TableLevel> levels;
  bool has_thp = true;
  std::vector<std::uint64_t> hugetlb_sizes;  // bytes, default size first
  unsigned contpte_pages = 0;                // pages in one contiguous group; 0: none

  [[nodiscard]] std::uint64_t page_size() const { return std::uint64_t{1} << page_shift; }
  [[nodiscard]] std::uint64_t pmd_size() const { return std::uint64_t{1} << pmd_shift; }
  [[nodiscard]] unsigned pmd_order() const { return pmd_shift - page_shift; }
  [[nodiscard]] std::uint64_t pages_per_pmd() const {
    return std::uint64_t{1} << pmd_order();
  }
};

// Where a static program's mappings lie without randomisation, when its main starts.
struct LayoutVma {
  std::uint64_t start = 0, end = 0;
  std::string perms;  // "rw-p"
  std::string name;   // "[heap]", "[stack]", "/init"
  // In the file; not given: right behind the mapping before.
  std::optional<std::uint64_t> offset;
};
struct Layout {
  std::uint64_t task_size = 0;
  std::uint64_t mmap_base = 0;  // top of the area handed out top-down
  std::uint64_t brk_start = 0;  // at exec
  std::uint64_t brk = 0;        // when main starts: libc's start-up code has moved it
  std::uint64_t mmap_min_addr = 65536;
  std::vector<LayoutVma> vmas;  // ascending; the brk area, if any, starts at brk_start
};

struct NumaNode {
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;  // at the start of a run (the rest is kernel, page cache …)
  // Free blocks at the start by order, as in /proc/buddyinfo; empty: the free memory is in
  // one piece.
  std::vector<std::uint64_t> free_blocks{};
};

// The kernel's names for the same thing on this architecture (attribution).
struct ArchNames {
  std::string user_fault_entry;  // el0_da, asm_exc_page_fault …
  std::vector<std::string>
      fault_path;             // do_mem_abort, do_translation_fault, do_page_fault …
  std::string syscall_entry;  // el0_svc, do_syscall_64 …
  std::string clear_page;     // clear_page, clear_page_erms …
};

struct TlbLevel {
  std::string name;
  unsigned level = 1;  // 1 or 2; several arrays of one level are asked at once
  unsigned entries = 0, ways = 0;
  std::vector<std::uint64_t> page_sizes;
  unsigned coalesced_pages = 0;  // so many contiguous base pages are one entry; 0: never
};

// Entries of the tables above the leaves, for page walks; 0: none.
struct WalkCache {
  unsigned entries = 0, ways = 0;
};

// What perf's generic events count on this CPU.
enum class TlbEvent : std::uint8_t {
  kNone,          // no such event, or one that the model can't count
  kL1Misses,      // accesses that the first level doesn't hold
  kL1ReadMisses,  // the loads among them
  kWalks,         // accesses that no level holds
  kReadWalks,     // the loads among them
};
struct TlbEvents {
  TlbEvent dtlb_loads = TlbEvent::kNone, dtlb_load_misses = TlbEvent::kReadWalks;
  std::string note;  // the hardware's events, in words
};

// What the kernel runs on: the machine itself, KVM with nested page tables, or KVM that
// keeps shadow page tables.  The costs of a guest are those of the machine and what
// virt_exit, virt_fault and virt_wake add.
enum class Virt : std::uint8_t { kNone, kKvm, kKvmShadow };

// A sleep state of an idle CPU (of a guest: of the host's CPU), as cpuidle knows it.
struct IdleState {
  std::string name;
  Duration exit_latency, target_residency;
  std::string source;
};

// The last-level data cache of each NUMA node.  With one, bulk accesses look up their pages
// (kernel_model/mm/data_caches.h); without, they all take the same time.
struct Llc {
  // Which pages contend for a set: those whose addresses say so, or any, as on a machine
  // whose free lists have been shuffled by long use.
  enum class Placement : std::uint8_t { kAddress, kRandom };
  static constexpr std::size_t kMostNodes = 8;  // of a machine that has one
  std::uint64_t bytes = 0;                      // 0: not modelled
  unsigned ways = 16, slices = 1;               // a slice a core, as a rule
  Placement placement = Placement::kAddress;
  std::uint64_t non_temporal_threshold = 0;  // so large blocks are written past it; 0: none
  [[nodiscard]] bool modelled() const { return bytes != 0; }
};

struct Profile {
  std::string name, title, source;
  Virt virt = Virt::kNone;
  Isa isa = Isa::kX86_64;
  Geometry geometry;
  Layout layout;
  unsigned cpus = 1;
  // Hardware threads of a core: 1 or 2.  With 2, CPUs 2n and 2n+1 are one core, which does
  // smt_gain thousandths of one thread's work when both are busy.
  unsigned smt = 1, smt_gain = 2000;
  std::vector<IdleState> idle_states;  // shallow to deep; none: waking takes no longer
  std::vector<int> node_of_cpu;
  std::vector<NumaNode> nodes;
  std::vector<std::vector<int>> node_distance;
  ArchNames names;
  std::uint64_t cpu_hz = 0;
  bool broadcast_tlbi = false;  // arm64: no IPIs
  // The hardware (or the TLB refill code) sets accessed and dirty bits; otherwise the
  // kernel's fault handler does.  arm64 before FEAT_HAFDBS, s390x, riscv64 without Svadu:
  // false.
  bool hardware_access_dirty = true;
  // First kernel version with CONFIG_ARCH_ENABLE_SPLIT_PMD_PTLOCK here ("5.2"); "" is
  // never.
  std::string split_pmd_ptlock_since;
  std::string per_vma_lock_since;  // "6.4" …; "" is never
  std::vector<TlbLevel> tlb;
  WalkCache walk_cache;
  TlbEvents tlb_events;
  bool tlb_model = false;  // accesses go through the modelled TLBs
  Llc llc;
  Costs costs;
  std::map<std::string, CostSource> cost_sources;  // by cost name, and "smt_gain"

  [[nodiscard]] std::uint64_t memory_bytes() const;
};

}  // namespace faultline::arch
