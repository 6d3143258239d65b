// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/presets/switches.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "sim/check.h"

namespace faultline::kernel {
namespace {

// How an enumerator is written.
template <typename E>
struct Name {
  std::string_view text;
  E value;
};

constexpr Name<RwSemRules> kRwSem[] = {{"3.7", RwSemRules::k3_7},
                                       {"4.15", RwSemRules::k4_15},
                                       {"5.3", RwSemRules::k5_3},
                                       {"5.11", RwSemRules::k5_11}};
constexpr Name<VmaLockRule> kVmaLock[] = {
    {"no", VmaLockRule::kNo},   {"6.4", VmaLockRule::k6_4},   {"6.5", VmaLockRule::k6_4},
    {"6.8", VmaLockRule::k6_8}, {"6.12", VmaLockRule::k6_12}, {"6.18", VmaLockRule::k6_18}};
constexpr Name<SplitPtlock> kSplit[] = {{"by_arch", SplitPtlock::kByArch},
                                        {"yes", SplitPtlock::kYes},
                                        {"no", SplitPtlock::kNo}};
constexpr Name<ThpEnabled> kEnabled[] = {{"always", ThpEnabled::kAlways},
                                         {"madvise", ThpEnabled::kMadvise},
                                         {"never", ThpEnabled::kNever}};
constexpr Name<ThpDefrag> kDefrag[] = {{"always", ThpDefrag::kAlways},
                                       {"defer", ThpDefrag::kDefer},
                                       {"defer+madvise", ThpDefrag::kDeferMadvise},
                                       {"madvise", ThpDefrag::kMadvise},
                                       {"never", ThpDefrag::kNever}};
constexpr Name<ThpMmapAlign> kAlign[] = {{"no", ThpMmapAlign::kNo},
                                         {"at_least_pmd", ThpMmapAlign::kAtLeastPmd},
                                         {"multiple_of_pmd", ThpMmapAlign::kMultipleOfPmd}};
constexpr Name<ZeroPmdWrite> kHugeWrite[] = {{"alloc_thp", ZeroPmdWrite::kAllocThp},
                                             {"split", ZeroPmdWrite::kSplit}};
constexpr Name<DeferredSplitRule> kDeferred[] = {
    {"any_unmap", DeferredSplitRule::kAnyUnmap},
    {"partially_mapped", DeferredSplitRule::kPartiallyMapped}};
constexpr Name<MprotectWritable> kMprotect[] = {{"no", MprotectWritable::kNo},
                                                {"base", MprotectWritable::kBase},
                                                {"huge", MprotectWritable::kHuge}};
constexpr Name<CowReuse> kCowReuse[] = {{"mapcount", CowReuse::kMapcount},
                                        {"refcount", CowReuse::kRefcount},
                                        {"exclusive", CowReuse::kExclusive}};
constexpr Name<OvercommitHeuristic> kOvercommit[] = {
    {"free_now", OvercommitHeuristic::kFreeNow},
    {"total_ram", OvercommitHeuristic::kTotalRam}};
constexpr Name<CollapseRule> kCollapse[] = {{"3.9", CollapseRule::k3_9},
                                            {"4.1", CollapseRule::k4_1},
                                            {"5.8", CollapseRule::k5_8},
                                            {"6.18", CollapseRule::k6_18}};
constexpr Name<RssStatRule> kRss[] = {{"task_cache", RssStatRule::kTaskCache},
                                      {"percpu", RssStatRule::kPercpu},
                                      {"exact", RssStatRule::kExact}};
constexpr Name<VrangeVersion> kVrange[] = {
    {"none", VrangeVersion::kNone}, {"vma", VrangeVersion::kVma},
    {"v7", VrangeVersion::k7},      {"v8", VrangeVersion::k8},
    {"v9", VrangeVersion::k9},      {"v10", VrangeVersion::k10}};
constexpr Name<VrangeFault> kVrangeFault[] = {{"sigbus", VrangeFault::kSigbus},
                                              {"zero_fill", VrangeFault::kZeroFill}};
constexpr Name<MadvFreeRule> kMadvFree[] = {{"4.5", MadvFreeRule::k4_5},
                                            {"4.12", MadvFreeRule::k4_12}};
constexpr Name<PcpRules> kPcp[] = {
    {"4.15", PcpRules::k4_15}, {"4.19", PcpRules::k4_19}, {"5.14", PcpRules::k5_14}};

constexpr std::int64_t kAny = std::int64_t{1} << 40;

template <auto Field, const auto& Names>
constexpr Switch choice(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            std::vector<std::string> accepted;
            for (const auto& n : Names) accepted.emplace_back(n.text);
            config.*Field = Names[as_choice(value, name, accepted)].value;
          },
          [](const KernelConfig& config) {
            for (const auto& n : Names)
              if (n.value == config.*Field) return std::string(n.text);
            FAULTLINE_CHECK(!"an enumerator has no name");
            return std::string();
          }};
}

template <auto Field>
constexpr Switch flag(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            config.*Field = as_boolean(value, name);
          },
          [](const KernelConfig& config) {
            return std::string(config.*Field ? "true" : "false");
          }};
}

template <auto Field, std::int64_t Min, std::int64_t Max>
constexpr Switch number(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            using T = std::remove_reference_t<decltype(config.*Field)>;
            config.*Field = static_cast<T>(as_integer(value, name, Min, Max));
          },
          [](const KernelConfig& config) { return std::to_string(config.*Field); }};
}

// A number, or "derived": what the kernel makes of the machine.
template <auto Field, std::int64_t Min>
constexpr Switch derived(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            if (value.text == "derived")
              (config.*Field).reset();
            else
              config.*Field =
                  static_cast<std::uint64_t>(as_integer(value, name, Min, kAny));
          },
          [](const KernelConfig& config) {
            const auto& number = config.*Field;
            return number ? std::to_string(*number) : std::string("derived");
          }};
}

template <auto Field>
constexpr Switch sizes(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            (config.*Field).clear();
            for (const Node& size : as_list(value, name))
              (config.*Field).push_back(as_size(size, name));
          },
          [](const KernelConfig& config) {
            std::string text = "[";
            for (const std::uint64_t size : config.*Field)
              text += (text.size() > 1 ? ", " : "") + std::to_string(size / 1024) + " KiB";
            return text + "]";
          }};
}

template <auto Field>
constexpr Switch bytes(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            config.*Field = as_size(value, name);
          },
          [](const KernelConfig& config) {
            return format_quantity(config.*Field, Dimension::kSize);
          }};
}

template <auto Field>
constexpr Switch duration(std::string_view key, std::string_view about) {
  return {key, about,
          [](KernelConfig& config, const Node& value, std::string_view name) {
            config.*Field = as_duration(value, name);
          },
          [](const KernelConfig& config) { return format_quantity(config.*Field); }};
}

using C = KernelConfig;

HugetlbSetting hugetlb_pool(const Node& item, const std::string& name) {
  const Node& table = as_table(item, name);
  check_keys(table, name,
             std::vector<std::string>{"size", "pages", "pages_of_node", "overcommit"});
  HugetlbSetting pool;
  pool.size = as_size(require(table, "size", name), name + ".size");
  if (const Node* pages = table.find("pages"))
    pool.pages = static_cast<std::uint64_t>(as_integer(*pages, name + ".pages", 0, kAny));
  if (const Node* nodes = table.find("pages_of_node"))
    for (const Node& n : as_list(*nodes, name + ".pages_of_node"))
      pool.pages_of_node.push_back(
          static_cast<std::uint64_t>(as_integer(n, name + ".pages_of_node", 0, kAny)));
  if (const Node* over = table.find("overcommit"))
    pool.overcommit =
        static_cast<std::uint64_t>(as_integer(*over, name + ".overcommit", 0, kAny));
  return pool;
}

void set_hugetlb_pools(KernelConfig& config, const Node& value, std::string_view name) {
  config.hugetlb_pools.clear();
  for (const Node& item : as_list(value, name))
    config.hugetlb_pools.push_back(hugetlb_pool(item, std::string(name)));
}

std::string get_hugetlb_pools(const KernelConfig& config) {
  std::string text = "[";
  for (const HugetlbSetting& pool : config.hugetlb_pools) {
    if (text.size() > 1) text += ", ";
    text += "{ size = \"" + format_quantity(pool.size, Dimension::kSize) + "\"";
    if (pool.pages_of_node.empty()) text += ", pages = " + std::to_string(pool.pages);
    if (!pool.pages_of_node.empty()) {
      text += ", pages_of_node = [";
      for (std::size_t i = 0; i < pool.pages_of_node.size(); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(pool.pages_of_node[i]);
      text += "]";
    }
    text += ", overcommit = " + std::to_string(pool.overcommit) + " }";
  }
  return text + "]";
}

constexpr Switch kSwitches[] = {
    flag<&C::pgfault_counts_retries>("counters.pgfault_counts_retries",
                                     "a fault that is tried again counts each time"),
    choice<&C::rss_stat, kRss>("counters.rss_stat", "how far VmRSS may lag"),
    duration<&C::disk_read>("file.disk_read", "latency of one read from a file's device"),
    bytes<&C::fault_around_bytes>("file.fault_around_bytes",
                                  "cached pages that a read fault maps together"),
    bytes<&C::read_ahead_bytes>("file.read_ahead", "read around a page that isn't cached"),
    {"hugetlb.pools", "huge pages set aside: {size, pages or pages_of_node, overcommit}",
     set_hugetlb_pools, get_hugetlb_pools},
    number<&C::khugepaged_alloc_sleep, 0, INT32_MAX>("khugepaged.alloc_sleep_millisecs",
                                                     "pause after a failed allocation"),
    flag<&C::khugepaged_defrag>("khugepaged.defrag",
                                "its allocations may reclaim and compact"),
    derived<&C::khugepaged_max_ptes_none, 0>("khugepaged.max_ptes_none",
                                             "empty entries that a collapse may fill"),
    derived<&C::khugepaged_max_ptes_shared, 0>("khugepaged.max_ptes_shared",
                                               "pages shared by fork that it may copy"),
    derived<&C::khugepaged_max_ptes_swap, 0>("khugepaged.max_ptes_swap",
                                             "pages that it may swap in"),
    derived<&C::khugepaged_pages_to_scan, 1>("khugepaged.pages_to_scan",
                                             "pages looked at between two pauses"),
    flag<&C::khugepaged_run>("khugepaged.run", "the thread collapses in the background"),
    number<&C::khugepaged_scan_sleep, 0, kAny>("khugepaged.scan_sleep_millisecs",
                                               "pause between scans"),
    flag<&C::madvise_vma_lock>("locks.madvise_vma_lock",
                               "MADV_DONTNEED and MADV_FREE take the VMA's lock alone"),
    flag<&C::mutex_spin>("locks.mutex_spin",
                         "who finds a mutex taken spins while its owner runs"),
    choice<&C::per_vma_lock, kVmaLock>("locks.per_vma_lock", "rules of the per-VMA lock"),
    choice<&C::rwsem, kRwSem>("locks.rwsem", "rules of mmap_lock"),
    choice<&C::split_pmd_ptlock, kSplit>(
        "locks.split_pmd_ptlock", "a PMD lock for each table page, or one for the mm"),
    bytes<&C::memcg_max>("memcg.max", "memory.max of the program's cgroup; 0: no limit"),
    flag<&C::brk_full_merge>("mm.brk_full_merge", "the heap may merge with the bss below"),
    choice<&C::cow_reuse, kCowReuse>("mm.cow_reuse",
                                     "when a write fault keeps an anonymous page"),
    choice<&C::madv_free, kMadvFree>(
        "mm.madv_free", "pages under MADV_FREE: anonymous list, or inactive file list"),
    flag<&C::madv_free_deactivates>("mm.madv_free_deactivates",
                                    "pages under MADV_FREE leave the active list"),
    flag<&C::madv_free_drops_swapped>("mm.madv_free_drops_swapped",
                                      "MADV_FREE frees what is swapped out"),
    flag<&C::madv_free_falls_back>(
        "mm.madv_free_falls_back",
        "MADV_FREE is MADV_DONTNEED when little memory is free (never merged)"),
    flag<&C::map_stack_nohugepage>("mm.map_stack_nohugepage",
                                   "MAP_STACK means VM_NOHUGEPAGE"),
    flag<&C::merge_into_unfaulted>("mm.merge_into_unfaulted",
                                   "a faulted VMA joins one without anon_vma"),
    flag<&C::mmap_charges_before_unmap>("mm.mmap_charges_before_unmap",
                                        "a refused MAP_FIXED leaves the old mappings"),
    flag<&C::mmap_prefers_next>("mm.mmap_prefers_next",
                                "a new mapping merges with the VMA above first"),
    flag<&C::mprotect_uncharges>("mm.mprotect_uncharges",
                                 "an unfaulted VMA made read-only is no longer charged"),
    choice<&C::mprotect_writable, kMprotect>(
        "mm.mprotect_writable", "pages mprotect makes writable without a fault"),
    flag<&C::munmap_downgrade>("mm.munmap_downgrade",
                               "munmap zaps under mmap_lock for read"),
    choice<&C::overcommit, kOvercommit>("mm.overcommit_heuristic",
                                        "what overcommit mode 0 refuses"),
    flag<&C::pt_reclaim>("mm.pt_reclaim",
                         "MADV_DONTNEED frees page tables it leaves empty (x86-64)"),
    number<&C::stack_guard_gap, 0, 1 << 20>("mm.stack_guard_gap",
                                            "pages kept below a stack"),
    flag<&C::anon_starts_active>("phys.anon_starts_active",
                                 "new anonymous pages go on the active list"),
    flag<&C::compaction>("phys.compaction", "CONFIG_COMPACTION"),
    number<&C::lru_batch, 1, 1024>("phys.lru_batch", "pages that wait per CPU for the LRU"),
    number<&C::min_free_kbytes_cap, 128, kAny>("phys.min_free_kbytes_cap",
                                               "largest derived min_free_kbytes"),
    choice<&C::pcp, kPcp>("phys.pcp", "orders and sizes of the per-CPU page lists"),
    number<&C::release_batch, 1, 1024>("phys.release_batch",
                                       "pages freed under one hold of lru_lock"),
    number<&C::uptime_hours, 0, 1'000'000>(
        "phys.uptime_hours", "hours that free memory has been fragmenting before the run"),
    number<&C::swap_queue_depth, 0, 1 << 20>(
        "swap.queue_depth", "pages that may wait for the swap device; 0: no queue"),
    duration<&C::swap_read>("swap.read", "latency of reading one page from swap"),
    bytes<&C::swap_size>("swap.size", "swap space; 0: none"),
    duration<&C::swap_write>("swap.write", "time to write one page to swap"),
    number<&C::extfrag_threshold, 0, 1000>("sysctl.vm.extfrag_threshold",
                                           "fragmentation above which compaction is tried"),
    number<&C::max_map_count, 1, INT32_MAX>("sysctl.vm.max_map_count", "VMAs of a process"),
    number<&C::min_free_kbytes, 0, kAny>("sysctl.vm.min_free_kbytes",
                                         "reserve; 0: as the kernel derives it"),
    number<&C::nr_hugepages, 0, kAny>("sysctl.vm.nr_hugepages",
                                      "hugetlb pages of the default size"),
    number<&C::nr_overcommit_hugepages, 0, kAny>("sysctl.vm.nr_overcommit_hugepages",
                                                 "surplus hugetlb pages, default size"),
    number<&C::overcommit_memory, 0, 2>("sysctl.vm.overcommit_memory", "overcommit mode"),
    number<&C::overcommit_ratio, 0, 1'000'000>("sysctl.vm.overcommit_ratio",
                                               "percent of RAM in overcommit mode 2"),
    number<&C::page_cluster, 0, 16>("sysctl.vm.page_cluster",
                                    "log2 of the pages read together from swap"),
    number<&C::swappiness, 0, 200>("sysctl.vm.swappiness",
                                   "anonymous pages against file pages"),
    number<&C::user_reserve_kbytes, 0, kAny>("sysctl.vm.user_reserve_kbytes",
                                             "kept back in overcommit mode 2; 0: derived"),
    number<&C::watermark_scale_factor, 1, 3000>(
        "sysctl.vm.watermark_scale_factor",
        "distance of the watermarks, 1/10000 of a zone"),
    choice<&C::collapse, kCollapse>("transparent_hugepage.collapse",
                                    "which pages khugepaged and MADV_COLLAPSE take"),
    choice<&C::cow_huge, kHugeWrite>("transparent_hugepage.cow_huge",
                                     "a write to a huge page shared by fork"),
    choice<&C::deferred_split, kDeferred>("transparent_hugepage.deferred_split",
                                          "what queues a huge page for splitting"),
    choice<&C::thp_defrag, kDefrag>("transparent_hugepage.defrag",
                                    "effort to get a huge page at a fault"),
    choice<&C::thp_enabled, kEnabled>("transparent_hugepage.enabled",
                                      "which mappings get huge pages"),
    flag<&C::thp_fault_fallback_charge>("transparent_hugepage.fault_fallback_charge",
                                        "the counter thp_fault_fallback_charge exists"),
    choice<&C::thp_mmap_align, kAlign>("transparent_hugepage.mmap_align",
                                       "mappings that mmap places on a PMD boundary"),
    sizes<&C::mthp_always>("transparent_hugepage.mthp_always",
                           "sizes below the PMD's, for all mappings (6.8)"),
    sizes<&C::mthp_inherit>("transparent_hugepage.mthp_inherit",
                            "sizes below the PMD's that follow `enabled` (6.8)"),
    sizes<&C::mthp_madvise>("transparent_hugepage.mthp_madvise",
                            "sizes below the PMD's, for madvised mappings (6.8)"),
    flag<&C::shrink_underused>("transparent_hugepage.shrink_underused",
                               "reclaim splits huge pages that are mostly zeros (6.12)"),
    flag<&C::thp_strictly_local>("transparent_hugepage.strictly_local",
                                 "huge pages from the local node or not at all"),
    flag<&C::use_zero_page>("transparent_hugepage.use_zero_page",
                            "reads map the huge zero page"),
    choice<&C::zero_pmd_write, kHugeWrite>("transparent_hugepage.zero_pmd_write",
                                           "a write to the huge zero page"),
    choice<&C::vrange, kVrange>("vrange", "version of the volatile-range patches"),
    choice<&C::vrange_fault, kVrangeFault>(
        "vrange_fault", "an access to a purged page of a volatile range"),
    flag<&C::vrange_reports_pressure>(
        "vrange_reports_pressure",
        "VRANGE_VOLATILE answers 1 when memory is short (only discussed)"),
};
static_assert(std::ranges::is_sorted(kSwitches, {}, &Switch::key));

}  // namespace

std::span<const Switch> all_switches() {
  return kSwitches;
}

}  // namespace faultline::kernel
