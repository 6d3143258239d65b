// SPDX-License-Identifier: Apache-2.0
//
// A resolved profile tree to a Profile.
#include <charconv>
#include <utility>

#include "arch_profiles/profile_tree.h"

namespace faultline::arch {
namespace {

const std::vector<std::string> kIsas = {"x86-64",      "arm64",   "ppc64-hash",
                                        "ppc64-radix", "s390x",   "riscv64",
                                        "mips64",      "sparc64", "loongarch64"};
const std::vector<std::string> kConfidences = {"measured", "published", "derived",
                                               "assumed", "calibration"};
const std::vector<std::string> kVirts = {"none", "kvm", "kvm-shadow"};
constexpr int kMaxCpus = 4096, kMaxNodes = 1024;

std::string text_or(const Node& table, std::string_view key, std::string fallback) {
  const Node* node = table.find(key);
  return node == nullptr ? std::move(fallback) : as_text(*node, key);
}

const Node& table_of(const Node& tree, std::string_view name) {
  return as_table(require(tree, name, "the profile"), name);
}

std::uint64_t read_address(const Node& table, std::string_view key) {
  const std::string dotted = "layout." + std::string(key);
  return static_cast<std::uint64_t>(as_integer(require(table, key, "[layout]"), dotted, 0));
}

std::vector<std::uint64_t> read_sizes(const Node& list, std::string_view key) {
  std::vector<std::uint64_t> sizes;
  for (const Node& item : as_list(list, key)) sizes.push_back(as_size(item, key));
  return sizes;
}

TableLevel read_level(const Node& node) {
  static const std::vector<std::string> keys = {"name", "index_bits", "table_bytes",
                                                "tables_per_page"};
  check_keys(as_table(node, "geometry.levels"), "geometry.levels", keys);
  TableLevel level;
  level.name = as_text(require(node, "name", "geometry.levels"), "geometry.levels.name");
  level.index_bits = static_cast<unsigned>(as_integer(
      require(node, "index_bits", "geometry.levels"), "geometry.levels.index_bits", 1, 20));
  level.table_bytes =
      static_cast<std::uint64_t>(as_integer(require(node, "table_bytes", "geometry.levels"),
                                            "geometry.levels.table_bytes", 1, 1 << 24));
  if (const Node* shared = node.find("tables_per_page"))
    level.tables_per_page = static_cast<std::uint64_t>(
        as_integer(*shared, "geometry.levels.tables_per_page", 1, 4096));
  return level;
}

unsigned read_page_shift(const Node& node) {
  const std::uint64_t size = as_size(node, "geometry.page_size");
  if (size == 0 || (size & (size - 1)) != 0)
    throw InputError({node.place,
                      "geometry.page_size",
                      "geometry.page_size: \"" + node.text + "\" is not a power of two",
                      {},
                      {"4KiB", "8KiB", "16KiB", "64KiB"}});
  unsigned shift = 0;
  while ((std::uint64_t{1} << shift) < size) ++shift;
  return shift;
}

Geometry read_geometry(const Node& table) {
  const auto number = [&](std::string_view key, int min, int max) {
    return static_cast<unsigned>(as_integer(require(table, key, "[geometry]"),
                                            "geometry." + std::string(key), min, max));
  };
  Geometry g;
  g.page_shift = read_page_shift(require(table, "page_size", "[geometry]"));
  g.va_bits = number("va_bits", 30, 57);
  g.pa_bits = number("pa_bits", 30, 57);
  g.max_order = number("max_order", 0, 20);
  if (const Node* pages = table.find("contpte_pages"))
    g.contpte_pages =
        static_cast<unsigned>(as_integer(*pages, "geometry.contpte_pages", 0, 1024));
  g.has_thp = as_boolean(require(table, "thp", "[geometry]"), "geometry.thp");
  for (const Node& item :
       as_list(require(table, "levels", "[geometry]"), "geometry.levels"))
    g.levels.push_back(read_level(item));
  // One PMD entry maps what one table of the last level maps.
  if (!g.levels.empty()) g.pmd_shift = g.page_shift + g.levels.back().index_bits;
  if (const Node* sizes = table.find("hugetlb_sizes"))
    g.hugetlb_sizes = read_sizes(*sizes, "geometry.hugetlb_sizes");
  return g;
}

// "00400000-00480000 r-xp /init", as /proc/PID/maps prints it without the file's columns; a
// file's offset may stand before its name: "0048c000-00490000 r--p 0008c000 /init".
LayoutVma read_vma(const Node& node) {
  const std::string text = as_text(node, "layout.vmas");
  LayoutVma vma;
  const char* const end = text.data() + text.size();
  const auto start = std::from_chars(text.data(), end, vma.start, 16);
  const bool dash = start.ec == std::errc() && start.ptr != end && *start.ptr == '-';
  const auto stop = dash ? std::from_chars(start.ptr + 1, end, vma.end, 16) : start;
  const auto at = static_cast<std::size_t>(stop.ptr - text.data());
  const bool good = dash && stop.ec == std::errc() && text.size() >= at + 5 &&
                    text[at] == ' ' && (text.size() == at + 5 || text[at + 5] == ' ');
  if (!good)
    throw InputError({node.place,
                      "layout.vmas",
                      "layout.vmas: \"" + text +
                          "\" is not a mapping, such as "
                          "\"00400000-00480000 r-xp /init\"",
                      {},
                      {}});
  vma.perms = text.substr(at + 1, 4);
  if (text.size() > at + 6) vma.name = text.substr(at + 6);
  const std::size_t space = vma.name.find(' ');
  std::uint64_t offset = 0;
  const char* const digits = vma.name.data();
  if (space != std::string::npos &&
      std::from_chars(digits, digits + space, offset, 16).ptr == digits + space) {
    vma.offset = offset;
    vma.name.erase(0, space + 1);
  }
  return vma;
}

Layout read_layout(const Node& table) {
  Layout layout;
  layout.task_size = read_address(table, "task_size");
  layout.mmap_base = read_address(table, "mmap_base");
  layout.brk_start = read_address(table, "brk_start");
  layout.brk = table.find("brk") != nullptr ? read_address(table, "brk") : layout.brk_start;
  if (table.find("mmap_min_addr") != nullptr)
    layout.mmap_min_addr = read_address(table, "mmap_min_addr");
  for (const Node& item : as_list(require(table, "vmas", "[layout]"), "layout.vmas"))
    layout.vmas.push_back(read_vma(item));
  return layout;
}

// A freshly booted machine: the kernel and its tables hold a fiftieth.
std::uint64_t default_free(std::uint64_t memory, std::uint64_t page) {
  return (memory - memory / 50) / page * page;
}

NumaNode read_node(const Node& node, std::uint64_t page) {
  static const std::vector<std::string> keys = {"memory", "free", "free_blocks"};
  check_keys(as_table(node, "nodes"), "[[nodes]]", keys);
  NumaNode out;
  out.memory_bytes = as_size(require(node, "memory", "[[nodes]]"), "nodes.memory");
  const Node* free = node.find("free");
  out.free_bytes =
      free == nullptr ? default_free(out.memory_bytes, page) : as_size(*free, "nodes.free");
  const Node* blocks = node.find("free_blocks");
  if (blocks == nullptr) return out;
  for (const Node& count : as_list(*blocks, "nodes.free_blocks"))
    out.free_blocks.push_back(
        static_cast<std::uint64_t>(as_integer(count, "nodes.free_blocks", 0)));
  out.free_bytes = 0;
  for (std::size_t order = 0; order < out.free_blocks.size(); ++order)
    out.free_bytes += out.free_blocks[order] * (page << order);
  return out;
}

// `nodes` is a number, or a list of nodes; `memory` is divided evenly among them.
std::vector<NumaNode> read_nodes(const Node& tree, std::uint64_t page) {
  std::vector<NumaNode> nodes(1);
  const Node* given = tree.find("nodes");
  if (given != nullptr && given->kind == Node::Kind::kList) {
    nodes.clear();
    for (const Node& item : given->items) nodes.push_back(read_node(item, page));
  } else if (given != nullptr) {
    nodes.resize(static_cast<std::size_t>(as_integer(*given, "nodes", 1, kMaxNodes)));
  }
  const Node* memory = tree.find("memory");
  if (memory == nullptr && (given == nullptr || given->kind != Node::Kind::kList))
    (void)require(tree, "memory", "the profile");
  if (memory == nullptr || nodes.empty()) return nodes;
  const std::uint64_t each = as_size(*memory, "memory") / nodes.size() / page * page;
  for (NumaNode& node : nodes) node = {each, default_free(each, page), {}};
  return nodes;
}

std::vector<int> read_node_of_cpu(const Node& tree, unsigned cpus, std::size_t nodes) {
  std::vector<int> out;
  const Node* given = tree.find("node_of_cpu");
  if (given != nullptr && (given->kind == Node::Kind::kList)) {
    for (const Node& item : given->items)
      out.push_back(static_cast<int>(as_integer(item, "node_of_cpu", 0, kMaxNodes)));
    return out;
  }
  if (given != nullptr) (void)as_list(*given, "node_of_cpu");
  for (unsigned cpu = 0; cpu < cpus; ++cpu)  // blocks of equal size, in order
    out.push_back(static_cast<int>(cpu * nodes / cpus));
  return out;
}

std::vector<std::vector<int>> read_distance(const Node& tree, std::size_t nodes) {
  std::vector<std::vector<int>> out(nodes, std::vector<int>(nodes, 20));  // REMOTE_DISTANCE
  for (std::size_t i = 0; i < nodes; ++i) out[i][i] = 10;                 // LOCAL_DISTANCE
  const Node* given = tree.find("node_distance");
  if (given == nullptr) return out;
  out.clear();
  for (const Node& row : as_list(*given, "node_distance")) {
    out.emplace_back();
    for (const Node& item : as_list(row, "node_distance"))
      out.back().push_back(static_cast<int>(as_integer(item, "node_distance", 10, 255)));
  }
  return out;
}

ArchNames read_names(const Node& table) {
  const auto text = [&](std::string_view key) {
    return as_text(require(table, key, "[names]"), "names." + std::string(key));
  };
  ArchNames names;
  names.user_fault_entry = text("user_fault_entry");
  names.syscall_entry = text("syscall_entry");
  names.clear_page = text("clear_page");
  for (const Node& item :
       as_list(require(table, "fault_path", "[names]"), "names.fault_path"))
    names.fault_path.push_back(as_text(item, "names.fault_path"));
  return names;
}

TlbLevel read_tlb(const Node& node, unsigned default_level) {
  static const std::vector<std::string> keys = {
      "name", "level", "entries", "ways", "page_sizes", "coalesced_pages", "source"};
  check_keys(as_table(node, "tlb"), "[[tlb]]", keys);
  TlbLevel level;
  level.name = as_text(require(node, "name", "[[tlb]]"), "tlb.name");
  level.level = default_level;
  if (const Node* given = node.find("level"))
    level.level = static_cast<unsigned>(as_integer(*given, "tlb.level", 1, 2));
  level.entries = static_cast<unsigned>(
      as_integer(require(node, "entries", "[[tlb]]"), "tlb.entries", 1, 1 << 16));
  level.ways = static_cast<unsigned>(
      as_integer(require(node, "ways", "[[tlb]]"), "tlb.ways", 1, level.entries));
  level.page_sizes = read_sizes(require(node, "page_sizes", "[[tlb]]"), "tlb.page_sizes");
  if (const Node* pages = node.find("coalesced_pages"))
    level.coalesced_pages =
        static_cast<unsigned>(as_integer(*pages, "tlb.coalesced_pages", 0, 64));
  return level;
}

TlbEvent read_event(const Node& table, std::string_view key, TlbEvent fallback) {
  static const std::vector<std::string> names = {"none", "l1-misses", "l1-read-misses",
                                                 "walks", "read-walks"};
  const Node* node = table.find(key);
  if (node == nullptr) return fallback;
  return static_cast<TlbEvent>(as_choice(*node, "tlb_events." + std::string(key), names));
}

// The arrays, in the order of their tables: the first is of level 1 and the others of level
// 2 unless they say so.
void read_tlbs(const Node& tree, Profile& p) {
  if (const Node* tlb = tree.find("tlb"))
    for (const Node& level : as_list(*tlb, "tlb"))
      p.tlb.push_back(read_tlb(level, p.tlb.empty() ? 1 : 2));
  if (const Node* cache = tree.find("walk_cache")) {
    const Node& table = as_table(*cache, "walk_cache");
    const auto number = [&](std::string_view key, std::int64_t max) {
      return static_cast<unsigned>(as_integer(require(table, key, "[walk_cache]"),
                                              "walk_cache." + std::string(key), 1, max));
    };
    p.walk_cache.entries = number("entries", 1 << 16);
    p.walk_cache.ways = number("ways", p.walk_cache.entries);
  }
  if (const Node* events = tree.find("tlb_events")) {
    const Node& table = as_table(*events, "tlb_events");
    p.tlb_events.dtlb_loads = read_event(table, "dtlb_loads", TlbEvent::kNone);
    p.tlb_events.dtlb_load_misses =
        read_event(table, "dtlb_load_misses", TlbEvent::kReadWalks);
    p.tlb_events.note = text_or(table, "note", "");
  }
  if (const Node* model = tree.find("tlb_model"))
    p.tlb_model = as_boolean(*model, "tlb_model");
}

}  // namespace

const Node& cost_value(const Node& cost, std::string_view key, CostSource& source) {
  if (!cost.is_table()) {
    source.source = "set by the scenario";
    return cost;
  }
  static const std::vector<std::string> keys = {"value", "source", "confidence", "note"};
  check_keys(cost, key, keys);
  const std::string name(key);
  source.source = as_text(require(cost, "source", key), name + ".source");
  source.confidence = static_cast<Confidence>(
      as_choice(require(cost, "confidence", key), name + ".confidence", kConfidences));
  source.note = text_or(cost, "note", "");
  return require(cost, "value", key);
}

namespace {

void read_costs(const Node& table, Profile& profile) {
  const auto read = [&](std::string_view name, Dimension dimension) {
    const std::string key = "costs." + std::string(name);
    CostSource source;
    const Node& value = cost_value(require(table, name, "[costs]"), key, source);
    const std::uint64_t quantity = as_quantity(value, key, dimension);
    source.unit = dimension == Dimension::kTime ? "time" : "bytes a second";
    profile.cost_sources[std::string(name)] = std::move(source);
    return quantity;
  };
#define X(name, text)  \
  profile.costs.name = \
      Duration::ps(static_cast<std::int64_t>(read(#name, Dimension::kTime)));
  FAULTLINE_TIME_COSTS(X)
#undef X
#define X(name, text) profile.costs.name = read(#name, Dimension::kRate);
  FAULTLINE_RATE_COSTS(X)
#undef X
#define X(name, text)               \
  if (table.find(#name) != nullptr) \
    profile.costs.name =            \
        Duration::ps(static_cast<std::int64_t>(read(#name, Dimension::kTime)));
  FAULTLINE_OPTIONAL_COSTS(X)
#undef X
#define X(name, text) \
  if (table.find(#name) != nullptr) profile.costs.name = read(#name, Dimension::kRate);
  FAULTLINE_OPTIONAL_RATES(X)
#undef X
}

// A guest's costs.  The initiator of a TLB flush sends an IPI for each receiver; the
// receivers take theirs and acknowledge at the same time.  With shadow page tables the
// hardware walks one table, as on the machine itself, and writing CR3 is an exit; what a
// fault costs is kernel_model/mm/shadow_mmu.h's.
void virtualise(Costs& c, Virt virt) {
  if (virt == Virt::kKvmShadow) {
    c.tlb_flush_local += c.virt_exit;
  } else {
    c.fault_entry_exit += c.virt_fault;
    c.dirty_assist += c.virt_walk;
    c.tlb_miss_walk += c.virt_walk;
  }
  c.tlb_flush_broadcast += c.virt_exit * 2;
  c.tlb_flush_per_cpu += c.virt_exit;
  c.tlb_flush_receive += c.virt_exit * 2;
  c.wakeup += c.virt_exit;
  c.wakeup_latency += c.virt_exit * 2 + c.virt_wake;
  c.timer_slack += c.virt_exit * 2 + c.virt_wake;
}

}  // namespace

std::string_view confidence_name(Confidence confidence) {
  return kConfidences[static_cast<std::size_t>(confidence)];
}

std::uint64_t Profile::memory_bytes() const {
  std::uint64_t sum = 0;
  for (const NumaNode& node : nodes) sum += node.memory_bytes;
  return sum;
}

Profile build_profile(const Node& tree, std::string name) {
  Profile p;
  p.name = std::move(name);
  p.title = text_or(tree, "title", p.name);
  p.source = as_text(require(tree, "source", "the profile"), "source");
  p.isa = static_cast<Isa>(
      as_choice(require(tree, "isa", "the profile"), "isa", kIsas, "architecture"));
  p.geometry = read_geometry(table_of(tree, "geometry"));
  p.layout = read_layout(table_of(tree, "layout"));
  p.cpus = static_cast<unsigned>(
      as_integer(require(tree, "cpus", "the profile"), "cpus", 1, kMaxCpus));
  p.nodes = read_nodes(tree, p.geometry.page_size());
  p.node_of_cpu = read_node_of_cpu(tree, p.cpus, p.nodes.size());
  p.node_distance = read_distance(tree, p.nodes.size());
  p.names = read_names(table_of(tree, "names"));
  p.cpu_hz = as_quantity(require(tree, "cpu_frequency", "the profile"), "cpu_frequency",
                         Dimension::kFrequency);
  const Node& features = table_of(tree, "features");
  p.broadcast_tlbi = as_boolean(require(features, "broadcast_tlbi", "[features]"),
                                "features.broadcast_tlbi");
  if (const Node* dirty = features.find("hardware_access_dirty"))
    p.hardware_access_dirty = as_boolean(*dirty, "features.hardware_access_dirty");
  p.split_pmd_ptlock_since = text_or(features, "split_pmd_ptlock_since", "");
  p.per_vma_lock_since = text_or(features, "per_vma_lock_since", "");
  read_tlbs(tree, p);
  read_llc(tree, p);
  read_cores(tree, p);
  read_costs(table_of(tree, "costs"), p);
  if (const Node* virt = tree.find("virt"))
    p.virt = static_cast<Virt>(as_choice(*virt, "virt", kVirts));
  if (p.virt != Virt::kNone) virtualise(p.costs, p.virt);
  return p;
}

}  // namespace faultline::arch
