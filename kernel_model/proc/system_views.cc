// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/system_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

// A counter of /proc/vmstat, in the kernel's order, from that version on.
struct Event {
  const char* name;
  std::uint64_t Vmstat::*field;
  unsigned since;
};
#define EVENT(name, since)      \
  Event {                       \
#name, &Vmstat::name, since \
  }
constexpr Event kEvents[] = {EVENT(pgactivate, 0),
                             EVENT(pgdeactivate, 0),
                             EVENT(pglazyfree, 4'005),
                             EVENT(pgfault, 0),
                             EVENT(pgmajfault, 0),
                             EVENT(pglazyfreed, 4'012),
                             EVENT(pgrefill, 4'008),
                             EVENT(pgsteal_kswapd, 4'008),
                             EVENT(pgsteal_direct, 4'008),
                             EVENT(pgscan_kswapd, 4'008),
                             EVENT(pgscan_direct, 4'008),
                             EVENT(pageoutrun, 0),
                             EVENT(oom_kill, 4'013),
                             EVENT(pgmigrate_success, 0),
                             EVENT(pgmigrate_fail, 0),
                             EVENT(compact_migrate_scanned, 0),
                             EVENT(compact_free_scanned, 0),
                             EVENT(compact_isolated, 0),
                             EVENT(compact_stall, 0),
                             EVENT(compact_fail, 0),
                             EVENT(compact_success, 0),
                             EVENT(compact_daemon_wake, 4'006),
                             EVENT(htlb_buddy_alloc_success, 0),
                             EVENT(htlb_buddy_alloc_fail, 0),
                             EVENT(thp_fault_alloc, 0),
                             EVENT(thp_fault_fallback, 0),
                             EVENT(thp_fault_fallback_charge, 5'008),
                             EVENT(thp_collapse_alloc, 0),
                             EVENT(thp_collapse_alloc_failed, 0),
                             EVENT(thp_split_page, 4'005),
                             EVENT(thp_split_page_failed, 4'005),
                             EVENT(thp_deferred_split_page, 4'005),
                             EVENT(thp_underused_split_page, 6'012),
                             EVENT(thp_split_pmd, 4'005),
                             EVENT(thp_scan_exceed_none_pte, 5'017),
                             EVENT(thp_scan_exceed_swap_pte, 5'017),
                             EVENT(thp_scan_exceed_share_pte, 5'017),
                             EVENT(thp_zero_page_alloc, 3'008),
                             EVENT(thp_zero_page_alloc_failed, 3'008),
                             EVENT(swap_ra, 4'014),
                             EVENT(vma_lock_success, 6'004),
                             EVENT(vma_lock_abort, 6'004),
                             EVENT(vma_lock_retry, 6'004),
                             EVENT(vma_lock_miss, 6'004)};
#undef EVENT

constexpr std::pair<const char*, LruList> kLists[] = {
    {"nr_inactive_anon", LruList::kInactiveAnon},
    {"nr_active_anon", LruList::kActiveAnon},
    {"nr_inactive_file", LruList::kInactiveFile},
    {"nr_active_file", LruList::kActiveFile},
    {"nr_unevictable", LruList::kUnevictable}};

std::uint64_t lru_size(Kernel& kernel, LruList list) {
  std::uint64_t pages = 0;
  for (int node = 0; node < kernel.phys().nodes(); ++node)
    pages += kernel.mm_shared().lrus.size(node, list);
  return pages;
}

void meminfo_line(std::string& out, std::string_view label, std::uint64_t kb) {
  fmt::format_to(std::back_inserter(out), "{:<16}{:>8} kB\n", label, kb);
}

void hugetlb_report_meminfo(std::string& out, Kernel& kernel) {
  const std::vector<HugetlbPool>& pools = kernel.hugetlb().pools();
  if (pools.empty()) return;
  std::uint64_t all = 0;
  for (const HugetlbPool& pool : pools) all += pool.nr_huge_pages * (pool.size >> 10);
  const HugetlbPool& pool = pools.front();
  const std::pair<const char*, std::uint64_t> counts[] = {
      {"HugePages_Total:", pool.nr_huge_pages},
      {"HugePages_Free:", pool.free},
      {"HugePages_Rsvd:", pool.resv},
      {"HugePages_Surp:", pool.surplus}};
  for (const auto& [label, count] : counts)
    fmt::format_to(std::back_inserter(out), "{:<16}   {:>5}\n", label, count);
  meminfo_line(out, "Hugepagesize:", pool.size >> 10);
  meminfo_line(out, "Hugetlb:", all);
}

}  // namespace

std::string vmstat_text(Kernel& kernel) {
  const Vmstat& v = kernel.vmstat();
  std::string out;
  const auto line = [&](std::string_view name, auto value) {
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
  };
  line("nr_free_pages", kernel.phys().nr_free_pages());
  if (kernel.mm_shared().lrus.lists_kept())
    for (const auto& [name, list] : kLists) line(name, lru_size(kernel, list));
  line("nr_anon_pages", v.nr_anon_pages);
  line("nr_anon_transparent_hugepages", v.nr_anon_transparent_hugepages);
  line("nr_mapped", v.nr_mapped);
  line("nr_file_pages", v.nr_file_pages);
  line("nr_shmem", v.nr_shmem);
  line("nr_page_table_pages", v.nr_page_table_pages);
  line("pswpin", v.pswpin);
  line("pswpout", v.pswpout);
  line("pgalloc_normal", kernel.phys().stats().pgalloc_normal);
  line("allocstall_normal", v.allocstall_normal);
  line("pgfree", kernel.phys().stats().pgfree);
  for (const Event& e : kEvents)
    if (kernel.version() >= e.since) line(e.name, v.*e.field);
  if (kernel.config().vrange != VrangeVersion::kNone) {
    line("pgdiscard_kswapd", v.pgdiscard_kswapd);
    line("pgdiscard_direct", v.pgdiscard_direct);
    line("pgvscan_kswapd", v.pgvscan_kswapd);
    line("pgvscan_direct", v.pgvscan_direct);
  }
  return out;
}

std::string meminfo_text(Kernel& kernel) {
  const arch::Geometry& g = kernel.profile().geometry;
  const Vmstat& v = kernel.vmstat();
  const PhysMem& phys = kernel.phys();
  const auto kb = [&](std::uint64_t pages) { return pages << (g.page_shift - 10); };
  const auto gauge = [&](std::int64_t pages) {
    return kb(static_cast<std::uint64_t>(std::max<std::int64_t>(pages, 0)));
  };
  std::uint64_t reserve = 0;
  for (int n = 0; n < phys.nodes(); ++n) reserve += phys.watermarks(n).high;
  const std::uint64_t free = phys.nr_free_pages();
  const std::uint64_t anon = gauge(v.nr_anon_pages);
  std::string out;
  meminfo_line(out, "MemTotal:", kb(phys.total_pages()));
  meminfo_line(out, "MemFree:", kb(free));
  meminfo_line(out, "MemAvailable:", kb(free - std::min(free, reserve)));
  meminfo_line(out, "Buffers:", 0);
  meminfo_line(out, "Cached:", gauge(v.nr_file_pages));
  meminfo_line(out, "SwapCached:", 0);
  const bool active =
      kernel.version() < 5'009;  // new anonymous pages go on the active list
  meminfo_line(out, "Active:", active ? anon : 0);
  meminfo_line(out, "Inactive:", active ? 0 : anon);
  meminfo_line(out, "Active(anon):", active ? anon : 0);
  meminfo_line(out, "Inactive(anon):", active ? 0 : anon);
  for (const char* none : {"Active(file):", "Inactive(file):", "Unevictable:", "Mlocked:"})
    meminfo_line(out, none, 0);
  meminfo_line(out, "SwapTotal:", kb(kernel.mm_shared().swap.total_pages()));
  meminfo_line(out, "SwapFree:", kb(kernel.mm_shared().swap.free_pages()));
  for (const char* none : {"Dirty:", "Writeback:"}) meminfo_line(out, none, 0);
  meminfo_line(out, "AnonPages:", anon);
  meminfo_line(out, "Mapped:", gauge(v.nr_mapped));
  meminfo_line(out, "Shmem:", gauge(v.nr_shmem));
  if (kernel.version() >= 4'020) meminfo_line(out, "KReclaimable:", 0);
  for (const char* none : {"Slab:", "SReclaimable:", "SUnreclaim:", "KernelStack:"})
    meminfo_line(out, none, 0);
  meminfo_line(out, "PageTables:", gauge(v.nr_page_table_pages));
  if (kernel.version() >= 6'001) meminfo_line(out, "SecPageTables:", 0);
  for (const char* none : {"NFS_Unstable:", "Bounce:", "WritebackTmp:"})
    meminfo_line(out, none, 0);
  meminfo_line(
      out, "CommitLimit:", kb(phys.total_pages()) * kernel.config().overcommit_ratio / 100);
  meminfo_line(out, "Committed_AS:", kb(kernel.committed_pages));
  for (const char* none : {"VmallocTotal:", "VmallocUsed:", "VmallocChunk:"})
    meminfo_line(out, none, 0);
  if (g.has_thp) {
    meminfo_line(out,
                 "AnonHugePages:", gauge(v.nr_anon_transparent_hugepages) << g.pmd_order());
    for (const char* none : {"ShmemHugePages:", "ShmemPmdMapped:"})
      meminfo_line(out, none, 0);
  }
  hugetlb_report_meminfo(out, kernel);
  return out;
}

std::string buddyinfo_text(Kernel& kernel) {
  const PhysMem& phys = kernel.phys();
  std::string out;
  for (int node = 0; node < phys.nodes(); ++node) {
    fmt::format_to(std::back_inserter(out), "Node {}, zone {:>8} ", node, "Normal");
    for (unsigned order = 0; order <= kernel.profile().geometry.max_order; ++order)
      fmt::format_to(std::back_inserter(out), "{:>6} ", phys.free_blocks(node, order));
    out += '\n';
  }
  return out;
}

}  // namespace faultline::kernel
