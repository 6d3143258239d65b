// SPDX-License-Identifier: Apache-2.0
//
// Event counters of /proc/vmstat that the model keeps, and the gauges beside them.  They
// mean what include/linux/vm_event_item.h and mm/vmstat.c say; version differences are in
// system_views.cc.  The vrange_ ones are the model's own: ranges that kswapd or the hook of
// v9 and v10 walked, could not walk because their mm was busy, ranges that lost their first
// page, accesses that got SIGBUS.
#pragma once

#include <cstdint>
#include <string_view>

namespace faultline::kernel {

// clang-format does not settle on these lines.
// clang-format off
#define FAULTLINE_VMSTAT_EVENTS(X)                                                        \
  X(pgalloc_normal)                                                                       \
  X(pgfree)                                                                               \
  X(pgfault)                                                                              \
  X(pgmajfault)                                                                           \
  X(pswpin) X(pswpout) X(allocstall_normal) X(pgactivate) X(pgdeactivate)                 \
  X(pgrefill) X(pgsteal_kswapd) X(pgsteal_direct) X(pgscan_kswapd) X(pgscan_direct)       \
  X(pageoutrun) X(oom_kill) X(swap_ra)                                                    \
  X(pgmigrate_success) X(pgmigrate_fail) X(compact_migrate_scanned)                       \
  X(compact_free_scanned) X(compact_isolated) X(compact_daemon_wake)                      \
  X(pglazyfree)                                                                           \
  X(pglazyfreed)                                                                          \
  X(thp_fault_alloc) X(thp_fault_fallback) X(thp_fault_fallback_charge)                   \
      X(thp_collapse_alloc) X(thp_collapse_alloc_failed) X(thp_split_page)                \
          X(thp_split_page_failed) X(thp_deferred_split_page) X(thp_underused_split_page) \
              X(thp_split_pmd)                                                            \
  X(thp_scan_exceed_none_pte) X(thp_scan_exceed_swap_pte) X(thp_scan_exceed_share_pte)    \
              X(thp_zero_page_alloc) X(thp_zero_page_alloc_failed)                        \
                  X(compact_stall) X(compact_fail) X(compact_success)                     \
                      X(htlb_buddy_alloc_success) X(htlb_buddy_alloc_fail)                \
                          X(vma_lock_success) X(vma_lock_abort) X(vma_lock_retry)         \
                              X(vma_lock_miss)                                            \
  X(pgdiscard_kswapd) X(pgdiscard_direct) X(pgvscan_kswapd) X(pgvscan_direct)             \
  X(vrange_victims) X(vrange_victims_busy) X(vrange_purged) X(vrange_sigbus)
// clang-format on

struct Vmstat {
#define X(name) std::uint64_t name = 0;
  FAULTLINE_VMSTAT_EVENTS(X)
#undef X
  // Gauges.
  std::int64_t nr_anon_pages = 0, nr_anon_transparent_hugepages = 0,
               nr_page_table_pages = 0, nr_file_pages = 0, nr_shmem = 0, nr_mapped = 0;

  // Calls f(name, value) for each event, in the order above.
  template <typename F>
  void for_each(F&& f) const {
#define X(name) f(std::string_view{#name}, name);
    FAULTLINE_VMSTAT_EVENTS(X)
#undef X
  }
};

}  // namespace faultline::kernel
