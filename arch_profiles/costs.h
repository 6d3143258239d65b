// SPDX-License-Identifier: Apache-2.0
//
// The named costs of a machine.  A profile (TOML) must give each one that has no default
// here, with unit, source and confidence.  The list is the only place where a cost is
// declared.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/time.h"

namespace faultline::arch {

enum class Confidence : std::uint8_t {
  kMeasured,
  kPublished,
  kDerived,
  kAssumed,
  kCalibration
};

// Time costs.  name: TOML key under [costs]; text: what is charged and when.
#define FAULTLINE_TIME_COSTS(X)                                                          \
  X(syscall_entry_exit, "one system call: trap, entry and exit work, without its body")  \
  X(fault_entry_exit, "one page fault: trap, entry and exit work, without its handling") \
  X(vma_lookup, "find_vma or lock_vma_under_rcu")                                        \
  X(mmap_base, "do_mmap body without locks: placement, VMA set-up, accounting")          \
  X(munmap_base, "do_munmap body without locks, zap and table work")                     \
  X(mprotect_base, "do_mprotect body without locks and page work")                       \
  X(brk_base, "sys_brk body without locks")                                              \
  X(madvise_base, "sys_madvise body without locks and page work")                        \
  X(vma_split_merge, "one VMA allocated, split off or merged away")                      \
  X(page_alloc, "one base page from the pcp list, charged to the memcg, on the LRU")     \
  X(page_free, "one base page back to the pcp list")                                     \
  X(huge_page_alloc, "one PMD-order page from the buddy lists, without clearing")        \
  X(huge_page_free, "one PMD-order page back to the buddy lists")                        \
  X(table_alloc, "one page-table page allocated and installed, without clearing")        \
  X(table_free, "one page-table page freed")                                             \
  X(pte_set, "one PTE written with rmap and counters")                                   \
  X(pte_clear, "one present PTE zapped with rmap and counters")                          \
  X(pmd_set, "one huge PMD written with rmap and counters")                              \
  X(pmd_split_pte, "one PTE and one subpage map count written when a huge PMD splits")   \
  X(pmd_walk, "one PMD entry looked at in a range walk")                                 \
  X(tlb_flush_local, "local flush of one page or of a range, on this CPU alone")         \
  X(tlb_flush_broadcast, "flush that other CPUs must see: IPI round trip or TLBI + DSB") \
  X(tlb_flush_per_cpu, "added for each other CPU that runs the mm (IPI machines)")       \
  X(lock_atomic, "one uncontended atomic lock or unlock operation")                      \
  X(lock_handover, "cache-line transfer to the next owner of a contended lock")          \
  X(futex_call, "futex_wait or futex_wake body")                                         \
  X(context_switch, "switch to another task on a CPU")                                   \
  X(wakeup, "try_to_wake_up as the waker pays it")                                       \
  X(wakeup_latency, "from wake-up to running on an idle CPU")                            \
  X(timer_slack, "added to each sleep: PR_SET_TIMERSLACK, hrtimer and idle exit")        \
  X(clone_base, "clone of a thread")                                                     \
  X(lru_scan_page, "one page that reclaim looks at: off the LRU, rmap walk, references") \
  X(migrate_page, "one base page moved by compaction, without copying its bytes")        \
  X(compact_scan_page, "one page frame that a scanner of compaction steps over")         \
  X(memory_access, "one user access that hits the caches")                               \
  X(tlb_miss_walk, "one page walk whose upper levels hit the walk cache")                \
  X(vrange_base, "sys_vrange body without locks: a range node allocated, tree searched") \
  X(vrange_node, "one volatile range put into, taken from or cut in the tree and list")  \
  X(lru_move_page, "one page from one LRU list to another through a per-CPU batch")      \
  X(signal_delivery,                                                                     \
    "a signal to a user handler and back: frame, handler call, "                         \
    "sigreturn")

// Time costs that a profile may leave out; zero then.
#define FAULTLINE_OPTIONAL_COSTS(X)                                                       \
  X(instruction, "one instruction of user code; if not given: one cycle")                 \
  X(lru_lock_page, "the part of page_alloc, page_free and lru_move_page under lru_lock")  \
  X(swap_page, "the CPU's work for one page to or from swap: slot, cache, block request") \
  X(zone_lock_page, "one page between buddy and per-CPU lists, under zone->lock")         \
  X(dirty_assist, "hardware sets the accessed or dirty bit of an entry")                  \
  X(tlb_flush_receive, "the IPI of another CPU's TLB flush, as its receiver pays for it") \
  X(virt_exit, "one exit of a guest to its host and back: an IPI sent or taken, HLT")     \
  X(virt_walk, "added where a guest's hardware walks both page tables to set a bit")      \
  X(virt_fault, "added to each page fault of a guest: two-dimensional page walks")        \
  X(virt_wake, "added when an idle CPU of a guest wakes: its host schedules it")          \
  X(mmu_lock_fault, "shadow paging: under the host's mmu_lock for each guest page fault") \
  X(mmu_lock_sync, "shadow paging: under mmu_lock for each TLB flush of a guest")         \
  X(mmu_lock_waiter, "added to a hand-over of mmu_lock for each other CPU that spins")    \
  X(tlb_l2_hit, "an access that misses the first level of the TLB and hits the second")   \
  X(tlb_walk_level, "each level of a page walk that the walk cache doesn't know")

// Rates in bytes a second.
#define FAULTLINE_RATE_COSTS(X)           \
  X(clear_rate, "clear_page on one core") \
  X(copy_rate, "copy_page on one core")   \
  X(node_bandwidth, "memory bandwidth of one NUMA node, shared by all that stream")

// Rates that a profile may leave out.
#define FAULTLINE_OPTIONAL_RATES(X)                                                 \
  X(cached_copy_rate,                                                               \
    "memcpy that the caches hold: up to 1 MiB, or what [llc] holds; if not given: " \
    "copy_rate")                                                                    \
  X(memory_rate, "fills of [llc] that one core has under way")

// "measured", as profiles write it.
[[nodiscard]] std::string_view confidence_name(Confidence confidence);

struct CostSource {
  std::string unit, source, note;
  Confidence confidence = Confidence::kAssumed;
};

struct Costs {
#define X(name, text) Duration name{};
  FAULTLINE_TIME_COSTS(X)
#undef X
#define X(name, text) std::uint64_t name = 0;
  FAULTLINE_RATE_COSTS(X)
  FAULTLINE_OPTIONAL_RATES(X)
#undef X
#define X(name, text) Duration name{};
  FAULTLINE_OPTIONAL_COSTS(X)
#undef X
};

}  // namespace faultline::arch
