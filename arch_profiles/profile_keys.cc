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
    FAULTLINE_TIME_COSTS(X) FAULTLINE_RATE_COSTS(X)
#undef X
};

struct TableKeys {
  std::string table;  // "" is the top level
  std::vector<std::string> keys;
};

const std::vector<TableKeys>& format() {
  static const std::vector<TableKeys> tables = {
      {"",
       {"abstract", "base", "cpu_frequency", "cpus", "isa", "memory", "node_distance",
        "node_of_cpu", "nodes", "source", "title", "tlb"}},
      {"geometry",
       {"contpte_pages", "hugetlb_sizes", "levels", "max_order", "page_size", "pa_bits",
        "thp", "va_bits"}},
      {"layout",
       {"brk", "brk_start", "mmap_base", "mmap_min_addr", "source", "task_size", "vmas"}},
      {"names", {"clear_page", "fault_path", "syscall_entry", "user_fault_entry"}},
      {"features", {"broadcast_tlbi", "per_vma_lock_since", "split_pmd_ptlock_since"}},
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

std::vector<std::string> top_level_names() {
  std::vector<std::string> names = format().front().keys;
  for (const TableKeys& table : format())
    if (!table.table.empty()) names.push_back(table.table);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

const std::vector<std::string>& profile_keys() {
  static const std::vector<std::string> keys = dotted_keys();
  return keys;
}

void check_profile_keys(const Node& tree, std::string_view where) {
  const auto names = top_level_names();
  for (const Entry& entry : tree.entries) {
    if (std::find(names.begin(), names.end(), entry.key) == names.end()) {
      std::string hint = did_you_mean(entry.key, names);
      if (hint.empty()) hint = did_you_mean(entry.key, profile_keys());
      throw InputError({entry.key_place, entry.key,
                        "unknown key \"" + entry.key + "\" in " + std::string(where),
                        std::move(hint), names});
    }
    const TableKeys* table = find_table(entry.key);
    if (table == nullptr) continue;
    const bool in_scenario = where == "[machine]";
    check_keys(as_table(entry.value, entry.key),
               (in_scenario ? "[machine." : "[") + entry.key + "]", table->keys);
  }
}

void overlay(Node& bottom, const Node& top) {
  for (const Entry& entry : top.entries) {
    const auto under = std::find_if(bottom.entries.begin(), bottom.entries.end(),
                                    [&](const Entry& e) { return e.key == entry.key; });
    if (under == bottom.entries.end()) {
      bottom.entries.push_back(entry);
    } else if (under->value.is_table() && entry.value.is_table() &&
               under->value.find("confidence") == nullptr) {
      overlay(under->value, entry.value);
    } else {
      *under = entry;
    }
  }
}

}  // namespace faultline::arch
