// SPDX-License-Identifier: Apache-2.0
//
// `faultline show profile NAME`: the machine, and what the kernel would derive from it.
#include <algorithm>

#include <fmt/format.h>

#include "arch_profiles/kernel_defaults.h"
#include "arch_profiles/profile_loader.h"

namespace faultline::arch {
namespace {

std::string size(std::uint64_t bytes) {
  return format_quantity(bytes, Dimension::kSize);
}

std::string sizes(const std::vector<std::uint64_t>& list) {
  std::string out;
  for (const std::uint64_t bytes : list) out += (out.empty() ? "" : ", ") + size(bytes);
  return out.empty() ? "none" : out;
}

std::string since(const std::string& version) {
  return version.empty() ? "never" : "since " + version;
}

std::string machine(const Profile& p) {
  std::string out = fmt::format("machine\n  {:<28}{} at {}\n", "CPUs", p.cpus,
                                format_quantity(p.cpu_hz, Dimension::kFrequency));
  if (p.smt > 1)
    out += fmt::format("  {:<28}{} cores of 2, which do {:.3f} of one thread's work\n",
                       "hardware threads", p.cpus / p.smt, p.smt_gain / 1000.0);
  for (const IdleState& s : p.idle_states)
    out +=
        fmt::format("  {:<28}exit {}, from {} idle\n", "idle state " + s.name,
                    format_quantity(s.exit_latency), format_quantity(s.target_residency));
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    std::string distances;
    for (const int d : p.node_distance[i]) distances += fmt::format(" {}", d);
    const auto cpus =
        std::count(p.node_of_cpu.begin(), p.node_of_cpu.end(), static_cast<int>(i));
    out += fmt::format("  {:<28}{} CPUs, {}, {} free at the start, distances{}\n",
                       fmt::format("node {}", i), cpus, size(p.nodes[i].memory_bytes),
                       size(p.nodes[i].free_bytes), distances);
  }
  return out;
}

std::string geometry(const Profile& p) {
  const Geometry& g = p.geometry;
  std::string out = "geometry\n";
  const auto line = [&out](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<28}{}\n", name, value);
  };
  line("page", size(g.page_size()));
  line("huge page (PMD)",
       fmt::format("{}, order {}, {} pages{}", size(g.pmd_size()), g.pmd_order(),
                   g.pages_per_pmd(), g.has_thp ? "" : "; no THP"));
  line("largest buddy block",
       fmt::format("{}, order {}", size(g.page_size() << g.max_order), g.max_order));
  line("user addresses", fmt::format("{} bits", g.va_bits));
  line("physical addresses", fmt::format("{} bits", g.pa_bits));
  line("hugetlb pages", sizes(g.hugetlb_sizes));
  line("contiguous-PTE group",
       g.contpte_pages == 0 ? "none" : size(g.contpte_pages * g.page_size()));
  return out;
}

std::string tables(const Profile& p) {
  std::string out = "page tables (top first)\n";
  unsigned shift = p.geometry.page_shift;
  for (const TableLevel& level : p.geometry.levels) shift += level.index_bits;
  for (const TableLevel& level : p.geometry.levels) {
    const unsigned entry = shift - level.index_bits;
    out += fmt::format("  {:<6}{:>6} entries of {:<9} table {}{}\n", level.name,
                       std::uint64_t{1} << level.index_bits,
                       size(std::uint64_t{1} << entry), size(level.table_bytes),
                       level.tables_per_page > 1
                           ? fmt::format(", {} share a page", level.tables_per_page)
                           : "");
    shift = entry;
  }
  return out;
}

std::string locks(const Profile& p) {
  const LockCoverage cover = lock_coverage(p.geometry);
  const std::string pmd = p.split_pmd_ptlock_since.empty() ? "the whole address space"
                                                           : size(cover.pmd_ptl_bytes);
  return fmt::format("locks\n  {:<28}{}\n  {:<28}{}\n  {:<28}{}\n  {:<28}{}\n",
                     "one PTE lock covers", size(cover.pte_ptl_bytes),
                     "one PMD lock covers",
                     p.split_pmd_ptlock_since.empty()
                         ? pmd
                         : fmt::format("{} (the whole address space before {})", pmd,
                                       p.split_pmd_ptlock_since),
                     "split PMD lock", since(p.split_pmd_ptlock_since), "per-VMA lock",
                     since(p.per_vma_lock_since));
}

std::string derived(const Profile& p) {
  const KhugepagedDefaults k = khugepaged_defaults(p.geometry);
  const MinFree m = recommended_min_free(p);
  return fmt::format(
      "what the kernel derives\n"
      "  {:<28}{} pages ({} each 10 s)\n  {:<28}{} / {} / {}\n"
      "  {:<28}{} a zone; on this machine {}{}\n",
      "khugepaged pages_to_scan", k.pages_to_scan,
      size(k.pages_to_scan * p.geometry.page_size()), "max_ptes_none/swap/shared",
      k.max_ptes_none, k.max_ptes_swap, k.max_ptes_shared, "min_free raised for THP to",
      size(m.per_zone_bytes), size(m.bytes), m.capped ? " (5 % of memory, the cap)" : "");
}

std::string tlb(const Profile& p) {
  std::string out = "TLB\n";
  if (p.tlb.empty()) out += "  not known\n";
  for (const TlbLevel& level : p.tlb)
    out += fmt::format("  {:<28}{} entries, {} ways: {}\n", level.name, level.entries,
                       level.ways, sizes(level.page_sizes));
  out += fmt::format("  {:<28}{}\n", "invalidation",
                     p.broadcast_tlbi ? "broadcast in hardware" : "by IPI");
  out += fmt::format("  {:<28}{}\n", "accessed and dirty bits",
                     p.hardware_access_dirty ? "set without a fault" : "set by a fault");
  return out;
}

std::string llc(const Profile& p) {
  if (!p.llc.modelled()) return "";
  std::string out =
      fmt::format("last-level cache\n  {:<28}{}, {} ways, {} slices; pages lie {}\n",
                  "of each node", size(p.llc.bytes), p.llc.ways, p.llc.slices,
                  p.llc.placement == Llc::Placement::kRandom ? "anywhere in it"
                                                             : "where their addresses say");
  if (p.llc.non_temporal_threshold != 0)
    out += fmt::format("  {:<28}from {}\n", "written past it",
                       size(p.llc.non_temporal_threshold));
  return out + "\n";
}

std::string cost_line(const Profile& p, std::string_view name, std::string_view text,
                      const std::string& value) {
  const CostSource& source = p.cost_sources.find(std::string(name))->second;
  return fmt::format("  {:<20}{:>10}  {:<12} {}\n{:34} from: {}\n", name, value,
                     confidence_name(source.confidence), text, "", source.source);
}

std::string costs(const Profile& p) {
  std::string out = "costs\n";
#define X(name, text) out += cost_line(p, #name, text, format_quantity(p.costs.name));
  FAULTLINE_TIME_COSTS(X)
#undef X
#define X(name, text)                 \
  if (p.cost_sources.contains(#name)) \
    out += cost_line(p, #name, text, format_quantity(p.costs.name));
  FAULTLINE_OPTIONAL_COSTS(X)
#undef X
#define X(name, text)                 \
  if (p.cost_sources.contains(#name)) \
    out += cost_line(p, #name, text, format_quantity(p.costs.name, Dimension::kRate));
  FAULTLINE_OPTIONAL_RATES(X)
#undef X
#define X(name, text) \
  out += cost_line(p, #name, text, format_quantity(p.costs.name, Dimension::kRate));
  FAULTLINE_RATE_COSTS(X)
#undef X
  return out;
}

}  // namespace

std::string describe(const Profile& p) {
  return fmt::format("{}: {}\nsource: {}\n\n", p.name, p.title, p.source) + machine(p) +
         "\n" + geometry(p) + "\n" + tables(p) + "\n" + locks(p) + "\n" + derived(p) +
         "\n" + tlb(p) + "\n" + llc(p) + costs(p);
}

}  // namespace faultline::arch
