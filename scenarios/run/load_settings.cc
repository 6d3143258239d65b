// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/load_settings.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "allocator/jemalloc/conf.h"
#include "allocator/jemalloc53/library.h"
#include "allocator/ptmalloc/tunables.h"
#include "arch_profiles/profile_loader.h"
#include "kernel_model/presets/presets.h"
#include "scenarios/run/allocators.h"
#include "scenarios/workloads/ops_program.h"

namespace faultline::scenario {
namespace {

const Node& required_table(const Node& settings, std::string_view name) {
  return as_table(require(settings, name, "the scenario"), name);
}

bool is_preset(std::string_view key) {
  return key == "preset";
}

// What may follow `prefix` in the key of a switch, up to the next dot; sorted.
std::vector<std::string> switches_under(std::string_view prefix) {
  std::vector<std::string> names;
  for (const std::string& key : kernel::switch_keys()) {
    if (!key.starts_with(prefix)) continue;
    const std::string rest = key.substr(prefix.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse_switch(const Entry& entry, const std::string& prefix) {
  const std::string table =
      prefix.empty() ? "kernel" : "kernel." + prefix.substr(0, prefix.size() - 1);
  std::vector<std::string> near = switches_under(prefix);
  if (prefix.empty()) near.emplace_back("preset");
  std::string hint = did_you_mean(entry.key, near);
  if (hint.empty()) hint = did_you_mean(prefix + entry.key, kernel::switch_keys());
  throw InputError({entry.key_place, table + "." + entry.key,
                    "unknown key \"" + entry.key + "\" in [" + table + "]", std::move(hint),
                    std::move(near)});
}

// A switch's dotted key may be written as tables or, in quotes, as one key.
void read_switches(const Node& table, const std::string& prefix,
                   kernel::KernelConfig& config) {
  const auto& keys = kernel::switch_keys();
  for (const Entry& entry : table.entries) {
    if (prefix.empty() && is_preset(entry.key)) continue;
    const std::string key = prefix + entry.key;
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
      kernel::set_switch(config, key, entry.value);
    } else if (entry.value.is_table() && !switches_under(key + ".").empty()) {
      read_switches(entry.value, key + ".", config);
    } else {
      refuse_switch(entry, prefix);
    }
  }
}

// tunables = "…" is GLIBC_TUNABLES; environment = { MALLOC_ARENA_MAX = "2" } the older
// variables.  What glibc passes over is noted, not refused.
void read_tunables(const Node& table, AllocatorSpec& spec) {
  std::string tunables;
  std::vector<alloc::Environment> variables;
  if (const Node* given = table.find("tunables"))
    tunables = as_text(*given, "allocator.tunables");
  if (const Node* given = table.find("environment"))
    for (const Entry& entry : as_table(*given, "allocator.environment").entries) {
      const std::string value = as_text(entry.value, "allocator.environment." + entry.key);
      if (entry.key == "GLIBC_TUNABLES")
        tunables = value;
      else
        variables.push_back({entry.key, value});
    }
  alloc::TunablesResult read =
      alloc::parse_tunables(tunables, *alloc::find_release(spec.release), variables);
  spec.settings = read.settings;
  spec.notes = std::move(read.notes);
}

alloc::je::Settings read_conf(const Node& node, bool real_53) {
  const std::string& text = as_text(node, "allocator.conf");
  alloc::je::ConfResult read =
      real_53 ? alloc::je::parse_conf_53(text) : alloc::je::parse_conf(text);
  if (read.problem.empty()) return read.settings;
  std::string hint = real_53 ? "write \"dirty_decay_ms:0,purge:dontneed\""
                             : "write \"lg_dirty_mult:3,purge:dontneed\"";
  if (!read.unknown.empty()) hint = did_you_mean(read.unknown, read.accepted);
  throw InputError({node.place, "allocator.conf", "allocator.conf: " + read.problem,
                    std::move(hint), std::move(read.accepted)});
}

std::int64_t read_bytes(const Node& node, const std::string& key,
                        const workloads::ParamDecl& decl) {
  const auto value = static_cast<std::int64_t>(as_size(node, key));
  if (value >= decl.min && value <= decl.max) return value;
  const auto text = [](std::int64_t v) {
    return format_quantity(static_cast<std::uint64_t>(v), Dimension::kSize);
  };
  throw InputError({node.place,
                    key,
                    key + " must be between " + text(decl.min) + " and " + text(decl.max) +
                        ", not " + text(value),
                    {},
                    {}});
}

// A place inside a text of several lines: TOML leaves out the newline behind the quotes.
Place place_in(const Node& node, unsigned line, unsigned column) {
  if (node.text.find('\n') == std::string::npos)
    return {node.place.file, node.place.line, node.place.column + column};
  return {node.place.file, node.place.line + line, column};
}

std::string read_program(const Node& node, const std::string& key) {
  std::string text = as_text(node, key);
  const auto program = std::make_unique<workloads::OpsProgram>();
  const workloads::OpsProblem problem = workloads::read_ops(text, *program);
  if (problem.what == nullptr) return text;
  std::string message = key + ": " + problem.what;
  if (!problem.word.empty()) message += ": \"" + std::string(problem.word) + "\"";
  std::vector<std::string> accepted;
  if (!problem.accepted.empty()) accepted.emplace_back(problem.accepted);
  throw InputError({place_in(node, problem.line, problem.column),
                    key,
                    std::move(message),
                    {},
                    std::move(accepted)});
}

std::int64_t read_param(const Node& node, const std::string& key,
                        const workloads::ParamDecl& decl) {
  switch (decl.type) {
    case workloads::ParamType::kCount:
      return as_integer(node, key, decl.min, decl.max);
    case workloads::ParamType::kBytes:
      return read_bytes(node, key, decl);
    case workloads::ParamType::kOps:
      break;  // read_program
    case workloads::ParamType::kChoice:
      return static_cast<std::int64_t>(as_choice(
          node, key, std::vector<std::string>(decl.choices.begin(), decl.choices.end())));
  }
  return 0;
}

std::string name_in(const Node& settings, std::string_view table) {
  const Node* node = settings.find(table);
  const Node* name = node != nullptr && node->is_table() ? node->find("name") : nullptr;
  return name == nullptr ? std::string() : name->text;
}

}  // namespace

const std::vector<std::string>& setting_keys() {
  static const std::vector<std::string> keys = {
      "allocator", "kernel", "machine", "pressure", "processes", "seed", "workload"};
  return keys;
}

void overlay_settings(Node& bottom, const Node& top) {
  for (const std::string_view table : {"allocator", "workload"}) {
    const std::string name = name_in(top, table);
    if (!name.empty() && name != name_in(bottom, table))
      std::erase_if(bottom.entries, [&](const Entry& e) { return e.key == table; });
  }
  overlay(bottom, top);
}

Node nested(std::string_view dotted_key, const Place& key_place, const Node& value) {
  const std::size_t dot = dotted_key.find('.');
  Node table;
  table.place = key_place;
  table.entries.push_back({std::string(dotted_key.substr(0, dot)), key_place, value});
  if (dot != std::string_view::npos)
    table.entries.back().value = nested(dotted_key.substr(dot + 1), key_place, value);
  return table;
}

Machine read_machine(const Node& settings) {
  const Node& table = required_table(settings, "machine");
  arch::check_machine_keys(table);
  const Node* given = table.find("profile");
  const Node& name = given != nullptr
                         ? *given
                         : require(table, "profile", "[machine]", arch::list_profiles());
  const std::string profile = as_text(name, "machine.profile");
  return {profile, arch::load_profile(profile, table, name.place)};
}

kernel::KernelConfig read_kernel(const Node& settings) {
  const Node& table = required_table(settings, "kernel");
  const auto presets = kernel::list_presets();
  const Node& name = require(table, "preset", "[kernel]", presets);
  kernel::KernelConfig config = kernel::load_preset(
      presets[as_choice(name, "kernel.preset", presets, "kernel preset")]);
  read_switches(table, "", config);
  return config;
}

void check_kernel(const Node& settings, const kernel::KernelConfig& config,
                  const arch::Profile& profile) {
  const Entry* entry = required_table(settings, "kernel").find_entry("hugetlb");
  const Place place = entry != nullptr ? entry->key_place : settings.place;
  const auto& sizes = profile.geometry.hugetlb_sizes;
  for (const kernel::HugetlbSetting& pool : config.hugetlb_pools) {
    if (std::ranges::find(sizes, pool.size) == sizes.end()) {
      std::vector<std::string> accepted;
      for (const std::uint64_t size : sizes)
        accepted.push_back(format_quantity(size, Dimension::kSize));
      throw InputError({place,
                        "kernel.hugetlb.pools",
                        "kernel.hugetlb.pools: this machine has no hugetlb pages of " +
                            format_quantity(pool.size, Dimension::kSize),
                        {},
                        std::move(accepted)});
    }
    if (pool.pages_of_node.size() > profile.nodes.size())
      throw InputError({place,
                        "kernel.hugetlb.pools",
                        "kernel.hugetlb.pools: pages_of_node names " +
                            std::to_string(pool.pages_of_node.size()) +
                            " nodes, the machine has " +
                            std::to_string(profile.nodes.size()),
                        {},
                        {}});
  }
}

// The real library: there must be one, and it was built for one page size.
void check_jemalloc53(const Node& name, const arch::Profile& profile) {
  const auto refuse = [&](const std::string& why, std::string hint) {
    throw InputError(
        {name.place, "allocator.name", "allocator.name: " + why, std::move(hint), {}});
  };
  const std::uint64_t page = profile.geometry.page_size();
  if (page > alloc::je53::kPage)
    refuse("\"jemalloc-5.3\" is Debian's build for pages of 4 KiB; with pages of " +
               format_quantity(page, Dimension::kSize) + " it doesn't start",
           "\"jemalloc\" (3.3) takes every page size");
  const std::string package(alloc::je53::kPackage);
  if (!alloc::je53::kAvailable)
    refuse("this program was built without the library that \"jemalloc-5.3\" is",
           "install the Debian package " + package + " (./dev setup), and build again");
}

AllocatorSpec read_allocator(const Node& settings, const arch::Profile& profile) {
  AllocatorSpec spec;
  const Node* node = settings.find("allocator");
  if (node == nullptr) return spec;
  const Node& table = as_table(*node, "allocator");
  std::size_t index = 0;
  if (const Node* name = table.find("name"))
    index = as_choice(*name, "allocator.name", allocator_names(), "allocator");
  const AllocatorDecl& decl = all_allocators()[index];
  std::vector<std::string> keys = {"name", "release"};
  keys.insert(keys.end(), decl.keys.begin(), decl.keys.end());
  check_keys(table, "[allocator]", keys);
  spec.name = decl.name;
  spec.release = decl.default_release;
  if (const Node* release = table.find("release"))
    spec.release = decl.releases[as_choice(*release, "allocator.release", decl.releases,
                                           "release of " + spec.name)];
  if (spec.name == "ptmalloc") read_tunables(table, spec);
  const bool real_53 = spec.name == "jemalloc-5.3";
  if (const Node* conf = table.find("conf")) spec.jemalloc = read_conf(*conf, real_53);
  if (real_53) check_jemalloc53(*table.find("name"), profile);
  return spec;
}

workloads::Params read_workload(const Node& settings) {
  const Node& table = required_table(settings, "workload");
  std::vector<std::string> names;
  for (const workloads::WorkloadDecl& w : workloads::all()) names.emplace_back(w.name);
  const Node& name = require(table, "name", "[workload]", names);
  const workloads::WorkloadDecl& decl =
      workloads::all()[as_choice(name, "workload.name", names, "workload")];

  std::vector<std::string> known = {"name"};
  for (const workloads::ParamDecl& p : decl.params) known.emplace_back(p.name);
  check_keys(table, "[workload]", known);
  workloads::Params params(decl);
  for (const workloads::ParamDecl& p : decl.params)
    if (p.type == workloads::ParamType::kOps)
      params.set_text(p.name, read_program(require(table, p.name, "[workload]"),
                                           "workload." + std::string(p.name)));
    else if (const Node* node = table.find(p.name))
      params.set(p.name, read_param(*node, "workload." + std::string(p.name), p));
  return params;
}

}  // namespace faultline::scenario
