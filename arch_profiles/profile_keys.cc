// SPDX-License-Identifier: Apache-2.0
//
// The profile format: which keys there are, and how one tree lies over another.
#include <algorithm>
#include <array>

#include "arch_profiles/profile_loader.h"
#include "arch_profiles/profile_tree.h"

namespace faultline::arch {
namespace {

const std::vector<std::string> kCostNames = {
#define X(name, text) #name,
    FAULTLINE_TIME_COSTS(X) FAULTLINE_OPTIONAL_COSTS(X) FAULTLINE_RATE_COSTS(X)
        FAULTLINE_OPTIONAL_RATES(X)
#undef X
};

struct TableKeys {
  std::string table;  // "" is the top level
  std::vector<std::string> keys;
};

const std::vector<TableKeys>& format() {
  static const std::vector<TableKeys> tables = {
      {"",
       {"abstract", "base", "cpu_frequency", "cpus", "idle_state", "isa", "memory",
        "node_distance", "node_of_cpu", "nodes", "smt", "smt_gain", "source", "title",
        "tlb", "tlb_model", "virt"}},
      {"geometry",
       {"contpte_pages", "hugetlb_sizes", "levels", "max_order", "page_size", "pa_bits",
        "thp", "va_bits"}},
      {"layout",
       {"brk", "brk_start", "mmap_base", "mmap_min_addr", "source", "task_size", "vmas"}},
      {"names", {"clear_page", "fault_path", "syscall_entry", "user_fault_entry"}},
      {"features",
       {"broadcast_tlbi", "hardware_access_dirty", "per_vma_lock_since",
        "split_pmd_ptlock_since"}},
      {"llc", {"non_temporal_threshold", "placement", "size", "slices", "source", "ways"}},
      {"tlb_events", {"dtlb_load_misses", "dtlb_loads", "note"}},
      {"walk_cache", {"entries", "source", "ways"}},
      {"costs", kCostNames},
  };
  return tables;
}

const TableKeys* find_table(std::string_view name) {
  for (const TableKeys& table : format())
    if (table.table == name) return &table;
  return nullptr;
}

// All keys as seen from the top level, so that a slip in depth gets a hint too.
std::vector<std::string> dotted_keys() {
  std::vector<std::string> keys;
  for (const TableKeys& table : format())
    for (const std::string& key : table.keys)
      keys.push_back(table.table.empty() ? key : table.table + "." + key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<std::string> top_level_names(Format format_of) {
  std::vector<std::string> names = format().front().keys;
  for (const TableKeys& table : format())
    if (!table.table.empty()) names.push_back(table.table);
  if (format_of == Format::kMachine) {
    std::erase_if(names,
                  [](const std::string& n) { return n == "abstract" || n == "base"; });
    names.emplace_back("profile");
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

const std::vector<std::string>& profile_keys() {
  static const std::vector<std::string> keys = dotted_keys();
  return keys;
}

void check_profile_keys(const Node& tree, Format format_of) {
  const auto names = top_level_names(format_of);
  const bool machine = format_of == Format::kMachine;
  for (const Entry& entry : tree.entries) {
    if (std::find(names.begin(), names.end(), entry.key) == names.end()) {
      std::string hint = did_you_mean(entry.key, names);
      if (hint.empty()) hint = did_you_mean(entry.key, profile_keys());
      throw InputError(
          {entry.key_place, entry.key,
           "unknown key \"" + entry.key + "\" in " + (machine ? "[machine]" : "a profile"),
           std::move(hint), names});
    }
    if (const TableKeys* table = find_table(entry.key))
      check_keys(as_table(entry.value, entry.key),
                 (machine ? "[machine." : "[") + entry.key + "]", table->keys);
  }
}

}  // namespace faultline::arch
