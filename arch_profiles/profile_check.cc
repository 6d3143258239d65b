// SPDX-License-Identifier: Apache-2.0
//
// Machines that can't exist.  Each check blames the setting that the user would have to
// change.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "arch_profiles/profile_tree.h"

namespace faultline::arch {
namespace {

constexpr unsigned kPteBytes = 8;
constexpr unsigned kPfnBits = 32;  // kernel::Pfn
constexpr std::array<std::string_view, 3> kMemory = {"memory", "nodes", "geometry.pa_bits"};

// The deepest node of `path` ("geometry.va_bits") that the tree has.
const Node& deepest(const Node& tree, std::string_view path) {
  const Node* node = &tree;
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const Node* next = node->find(path.substr(0, dot));
    if (next == nullptr) break;
    node = next;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return *node;
}

// The settings contradict each other: blames the first that the user wrote, for the
// built-in profiles are sound by themselves.
[[noreturn]] void impossible(const Node& tree, std::span<const std::string_view> paths,
                             const std::string& why) {
  const auto users = std::find_if(paths.begin(), paths.end(), [&](std::string_view path) {
    return !deepest(tree, path).place.file.starts_with(kBuiltIn);
  });
  const std::string key(users == paths.end() ? *paths.begin() : *users);
  throw InputError({deepest(tree, key).place, key, key + ": " + why, {}, {}});
}

[[noreturn]] void impossible(const Node& tree,
                             std::initializer_list<std::string_view> paths,
                             const std::string& why) {
  impossible(tree, std::span(paths.begin(), paths.size()), why);
}

std::string bits(unsigned n) {
  return std::to_string(n);
}

std::string size_text(std::uint64_t bytes) {
  return format_quantity(bytes, Dimension::kSize);
}

void check_levels(const Profile& p, const Node& tree) {
  const Geometry& g = p.geometry;
  if (g.levels.size() < 2)
    impossible(tree, {"geometry.levels"}, "a page table has at least two levels");
  unsigned reach = g.page_shift;
  for (const TableLevel& level : g.levels) {
    reach += level.index_bits;
    const std::uint64_t entries = std::uint64_t{kPteBytes} << level.index_bits;
    // Hash MMU tables carry a second half for the slots of their entries.
    if (level.table_bytes != entries && level.table_bytes != 2 * entries)
      impossible(tree, {"geometry.levels"},
                 "the " + level.name + " table of " + bits(level.index_bits) +
                     " index bits takes " + size_text(entries) + ", not " +
                     size_text(level.table_bytes));
    if (level.tables_per_page > 1 &&
        level.tables_per_page * level.table_bytes != g.page_size())
      impossible(tree, {"geometry.levels", "geometry.page_size"},
                 std::to_string(level.tables_per_page) + " " + level.name +
                     " tables don't fill a page of " + size_text(g.page_size()));
  }
  if (reach < g.va_bits)
    impossible(tree, {"geometry.va_bits", "geometry.levels", "geometry.page_size"},
               "the page table reaches " + bits(reach) + " address bits, fewer than the " +
                   bits(g.va_bits) + " of user addresses");
}

void check_geometry(const Profile& p, const Node& tree) {
  const Geometry& g = p.geometry;
  if (g.page_shift < 12 || g.page_shift > 16)
    impossible(tree, {"geometry.page_size"}, "Linux has pages of 4 KiB to 64 KiB");
  check_levels(p, tree);
  if (g.has_thp && g.pmd_order() > g.max_order)
    impossible(tree, {"geometry.max_order", "geometry.page_size", "geometry.levels"},
               "a huge page of " + size_text(g.pmd_size()) + " is of order " +
                   bits(g.pmd_order()) + ", above the largest buddy block");
  for (const std::uint64_t size : g.hugetlb_sizes)
    if ((size & (size - 1)) != 0 || size <= g.page_size())
      impossible(tree, {"geometry.hugetlb_sizes", "geometry.page_size"},
                 size_text(size) + " is not a larger power of two than the page");
}

// A free block needs a buddy that isn't wholly free, or the two would be one.
bool can_lie_apart(const NumaNode& node, const Geometry& g) {
  std::vector<std::uint64_t> blocks = node.free_blocks;
  if (blocks.size() > g.max_order + 1) return false;
  blocks.resize(g.max_order + 1);
  // MemTotal is less than the range of addresses: the last block counts whole.
  const std::uint64_t block = g.page_size() << g.max_order;
  const std::uint64_t whole = (node.memory_bytes + block - 1) / block;
  if (blocks[g.max_order] > whole) return false;
  std::uint64_t broken = whole - blocks[g.max_order];
  for (unsigned order = g.max_order; order-- > 0;) {
    if (blocks[order] > broken) return false;
    broken = 2 * broken - blocks[order];
  }
  return true;
}

void check_memory(const Profile& p, const Node& tree) {
  const std::uint64_t page = p.geometry.page_size();
  const std::uint64_t total = p.memory_bytes();
  if (p.nodes.empty()) impossible(tree, {"nodes"}, "a machine has at least one node");
  for (const NumaNode& node : p.nodes) {
    if (node.memory_bytes == 0 || node.memory_bytes % page != 0)
      impossible(tree, kMemory,
                 size_text(node.memory_bytes) + " a node is not a whole number of " +
                     size_text(page) + " pages, at least one");
    if (node.free_bytes > node.memory_bytes)
      impossible(tree, kMemory,
                 size_text(node.free_bytes) + " free of " + size_text(node.memory_bytes));
    if (!can_lie_apart(node, p.geometry))
      impossible(tree, kMemory,
                 "its free_blocks don't fit a node of " + size_text(node.memory_bytes) +
                     " with blocks up to order " + std::to_string(p.geometry.max_order));
  }
  if (total > (std::uint64_t{1} << p.geometry.pa_bits))
    impossible(tree, kMemory,
               size_text(total) + " is beyond the " + bits(p.geometry.pa_bits) +
                   " physical address bits (" +
                   size_text(std::uint64_t{1} << p.geometry.pa_bits) + ")");
  if ((total >> p.geometry.page_shift) >> kPfnBits != 0)
    impossible(tree, kMemory,
               size_text(total) + " is more than 2^32 pages, which the model counts");
}

void check_topology(const Profile& p, const Node& tree) {
  const std::size_t nodes = p.nodes.size();
  if (nodes > p.cpus && tree.find("node_of_cpu") == nullptr)
    impossible(tree, {"nodes"},
               std::to_string(nodes) + " nodes for " + std::to_string(p.cpus) +
                   " CPUs; say which is where with node_of_cpu");
  if (p.node_of_cpu.size() != p.cpus)
    impossible(tree, {"node_of_cpu", "cpus"},
               "it names the nodes of " + std::to_string(p.node_of_cpu.size()) +
                   " CPUs of " + std::to_string(p.cpus));
  for (const int node : p.node_of_cpu)
    if (static_cast<std::size_t>(node) >= nodes)
      impossible(tree, {"node_of_cpu", "cpus"},
                 "there is no node " + std::to_string(node) + " among the " +
                     std::to_string(nodes));
  const auto& distance = p.node_distance;
  bool square = distance.size() == nodes;
  for (const auto& row : distance) square = square && row.size() == nodes;
  if (!square)
    impossible(tree, {"node_distance", "nodes"},
               "it must be a square of " + std::to_string(nodes) + " rows, one a node");
  for (std::size_t i = 0; i < nodes; ++i)
    if (distance[i][i] != 10)
      impossible(tree, {"node_distance"}, "a node's distance to itself is 10");
}

void check_cores(const Profile& p, const Node& tree) {
  if (p.cpus % p.smt != 0)
    impossible(tree, {"smt", "cpus"},
               std::to_string(p.cpus) + " CPUs are no cores of " + std::to_string(p.smt) +
                   " threads");
  for (std::size_t cpu = 0; p.smt == 2 && cpu < p.cpus; cpu += 2)
    if (p.node_of_cpu[cpu] != p.node_of_cpu[cpu + 1])
      impossible(tree, {"node_of_cpu", "smt", "nodes"},
                 "CPUs " + std::to_string(cpu) + " and " + std::to_string(cpu + 1) +
                     " are one core but on two nodes");
  for (std::size_t i = 1; i < p.idle_states.size(); ++i) {
    const IdleState &shallow = p.idle_states[i - 1], &deep = p.idle_states[i];
    if (deep.exit_latency < shallow.exit_latency ||
        deep.target_residency < shallow.target_residency)
      impossible(tree, {"idle_state"},
                 deep.name + " is not deeper than " + shallow.name + " before it");
  }
}

void check_layout(const Profile& p, const Node& tree) {
  const Layout& layout = p.layout;
  const std::uint64_t page = p.geometry.page_size();
  const auto aligned = [page](std::uint64_t at) { return at % page == 0; };
  const std::uint64_t end = std::uint64_t{1} << p.geometry.va_bits;
  if (layout.task_size > end)
    impossible(tree, {"layout.task_size", "geometry.va_bits"},
               "it is beyond the " + bits(p.geometry.va_bits) + " bits of user addresses");
  if (!aligned(layout.mmap_base) || layout.mmap_base >= layout.task_size)
    impossible(tree, {"layout.mmap_base", "geometry.page_size"},
               "it must be a page boundary below task_size");
  if (!aligned(layout.brk_start) || layout.brk < layout.brk_start)
    impossible(tree, {"layout.brk_start", "geometry.page_size"},
               "it must be a page boundary at or below brk");
  std::uint64_t below = layout.mmap_min_addr;
  for (const LayoutVma& vma : layout.vmas) {
    if (!aligned(vma.start) || !aligned(vma.end) || vma.end <= vma.start)
      impossible(
          tree, {"layout.vmas", "geometry.page_size"},
          "the mapping of " + vma.name + " isn't made of " + size_text(page) + " pages");
    if (vma.start < below || vma.end > layout.task_size)
      impossible(tree, {"layout.vmas", "geometry.page_size"},
                 "the mapping of " + vma.name + " overlaps or is out of order or bounds");
    below = vma.end;
  }
}

bool is_version(std::string_view text) {
  if (text.empty()) return true;  // never
  const std::size_t dot = text.find('.');
  const auto digits = [](std::string_view s) {
    return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dot != std::string_view::npos && digits(text.substr(0, dot)) &&
         digits(text.substr(dot + 1));
}

void check_tlb(const Profile& p, const Node& tree) {
  constexpr unsigned kMostWays = 64;
  const auto divides = [&](const std::string& name, unsigned entries, unsigned ways,
                           const char* key) {
    if (ways > kMostWays)
      impossible(tree, {key},
                 name + " has more than " + std::to_string(kMostWays) + " ways");
    if (entries % ways != 0)
      impossible(tree, {key},
                 std::to_string(entries) + " entries of " + name + " don't divide into " +
                     std::to_string(ways) + " ways");
  };
  bool serves_base_pages = false;
  for (const TlbLevel& level : p.tlb) {
    divides(level.name, level.entries, level.ways, "tlb");
    for (const std::uint64_t size : level.page_sizes) {
      if ((size & (size - 1)) != 0)
        impossible(tree, {"tlb"}, "no page of " + level.name + " has " + size_text(size));
      serves_base_pages |= level.level == 1 && size <= p.geometry.page_size();
    }
    if ((level.coalesced_pages & (level.coalesced_pages - 1)) != 0)
      impossible(tree, {"tlb"},
                 "coalesced_pages of " + level.name + " is not a power of two");
  }
  if (p.walk_cache.entries != 0)
    divides("the walk cache", p.walk_cache.entries, p.walk_cache.ways, "walk_cache");
  if (p.tlb_model && !serves_base_pages)
    impossible(tree, {"tlb_model", "tlb"},
               "its TLB can't be modelled: no array of level 1 is known that holds pages "
               "of " +
                   size_text(p.geometry.page_size()));
}

void check_llc(const Profile& p, const Node& tree) {
  const Llc& llc = p.llc;
  if (!llc.modelled()) return;
  const std::uint64_t step = p.geometry.page_size() * llc.ways * llc.slices;
  if (llc.bytes % step != 0)
    impossible(tree, {"llc.size", "llc.ways", "llc.slices", "geometry.page_size"},
               size_text(llc.bytes) + " don't divide into " + std::to_string(llc.slices) +
                   " slices of " + std::to_string(llc.ways) + " ways with pages of " +
                   size_text(p.geometry.page_size()));
  if (p.nodes.size() > Llc::kMostNodes)
    impossible(tree, {"llc.size", "nodes"},
               "caches are modelled on machines of up to " +
                   std::to_string(Llc::kMostNodes) + " nodes");
  if (p.costs.cached_copy_rate == 0 || p.costs.memory_rate == 0)
    impossible(tree, {"llc.size", "costs"},
               "a machine with [llc] needs costs.cached_copy_rate and costs.memory_rate");
}

// What passes under lru_lock is a part of the whole.
void check_lru_lock(const Profile& p, const Node& tree) {
  const Costs& c = p.costs;
  const Duration most =
      std::min({c.page_alloc, c.page_free, c.lru_move_page, c.lru_scan_page / 2});
  if (c.lru_lock_page > most)
    impossible(tree,
               {"costs.lru_lock_page", "costs.page_alloc", "costs.page_free",
                "costs.lru_move_page", "costs.lru_scan_page"},
               "lru_lock_page is a part of page_alloc, page_free, lru_move_page and half "
               "of lru_scan_page");
}

void check_rest(const Profile& p, const Node& tree) {
  if (!is_version(p.split_pmd_ptlock_since))
    impossible(tree, {"features.split_pmd_ptlock_since"},
               "not a kernel version, such as \"5.2\"");
  if (!is_version(p.per_vma_lock_since))
    impossible(tree, {"features.per_vma_lock_since"},
               "not a kernel version, such as \"6.4\"");
  if (p.cpu_hz == 0) impossible(tree, {"cpu_frequency"}, "a CPU has a clock");
  check_tlb(p, tree);
  check_llc(p, tree);
  check_lru_lock(p, tree);
#define X(name, text) \
  if (p.costs.name == 0) impossible(tree, {"costs." #name}, "a rate of nothing never ends");
  FAULTLINE_RATE_COSTS(X)
#undef X
}

}  // namespace

void check_profile(const Profile& profile, const Node& tree) {
  check_geometry(profile, tree);
  check_memory(profile, tree);
  check_topology(profile, tree);
  check_cores(profile, tree);
  check_layout(profile, tree);
  check_rest(profile, tree);
}

}  // namespace faultline::arch
