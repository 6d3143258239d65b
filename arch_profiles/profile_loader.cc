// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/profile_loader.h"

#include <algorithm>
#include <utility>

#include "arch_profiles/embedded.h"
#include "arch_profiles/profile_tree.h"

namespace faultline::arch {
namespace {

constexpr std::size_t kMaxBases = 8;  // a longer chain is a circle

const EmbeddedFile* find_embedded(std::string_view name) {
  for (const EmbeddedFile& file : embedded_profiles())
    if (file.name == name) return &file;
  return nullptr;
}

Node parse_built_in(const EmbeddedFile& file) {
  return parse_toml(file.text, std::string(kBuiltIn) + std::string(file.name) + ".toml");
}

bool is_abstract(const Node& tree) {
  const Node* abstract = tree.find("abstract");
  return abstract != nullptr && as_boolean(*abstract, "abstract");
}

std::string beside(const std::string& file, std::string_view path) {
  const std::size_t slash = file.rfind('/');
  if (path.starts_with('/') || slash == std::string::npos) return std::string(path);
  return file.substr(0, slash + 1) + std::string(path);
}

InputError no_such_profile(std::string_view name, const Place& asked_at) {
  const auto names = list_profiles();
  return InputError({asked_at, "profile",
                     "there is no profile \"" + std::string(name) + "\"",
                     did_you_mean(name, names), names});
}

Node parse_named(std::string_view name, const Place& asked_at) {
  if (name.ends_with(".toml")) {
    const std::string path =
        asked_at.line == 0 ? std::string(name) : beside(asked_at.file, name);
    return parse_toml(read_file(path, asked_at), path);
  }
  const EmbeddedFile* file = find_embedded(name);
  if (file == nullptr) throw no_such_profile(name, asked_at);
  return parse_built_in(*file);
}

void drop(Node& tree, std::string_view key) {
  std::erase_if(tree.entries, [&](const Entry& e) { return e.key == key; });
}

// What follows from a setting goes when the setting is replaced: the distances between
// nodes from their number, and so on.
void overlay_profile(Node& tree, const Node& top) {
  if (const Node* nodes = top.find("nodes")) {
    drop(tree, "node_distance");
    drop(tree, "node_of_cpu");
    if (nodes->kind == Node::Kind::kList) drop(tree, "memory");
  }
  if (top.find("cpus") != nullptr) drop(tree, "node_of_cpu");
  overlay(tree, top);
}

// The tree of a profile with its bases under it: each base over the ones named before it.
Node resolved_tree(std::string_view name, const Place& asked_at, std::size_t depth = 0) {
  if (depth > kMaxBases)
    throw InputError(
        {asked_at,
         "base",
         "the profile is based on itself, through \"" + std::string(name) + "\"",
         {},
         {}});
  Node own = parse_named(name, asked_at);
  check_profile_keys(own, Format::kProfile);
  Node tree;
  tree.place = own.place;
  if (const Node* base = own.find("base")) {
    const bool one = base->kind != Node::Kind::kList;
    for (const Node& item : one ? std::vector<Node>{*base} : base->items)
      overlay_profile(tree, resolved_tree(as_text(item, "base"), item.place, depth + 1));
  }
  drop(tree, "abstract");
  overlay_profile(tree, own);
  tree.place = own.place;
  return tree;
}

// The costs of virtualisation lie under those of the profile.
void add_virt_costs(Node& tree) {
  const Node* virt = tree.find("virt");
  if (virt == nullptr || (virt->text != "kvm" && virt->text != "kvm-shadow")) return;
  Node with = resolved_tree("virt-" + virt->text, virt->place);
  const Node own = std::move(tree);
  overlay(with, own);
  with.place = own.place;
  tree = std::move(with);
}

Profile finished(Node tree, std::string_view name) {
  add_virt_costs(tree);
  Profile profile = build_profile(tree, std::string(name));
  check_profile(profile, tree);
  return profile;
}

}  // namespace

std::vector<std::string> list_profiles() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_profiles())
    if (!is_abstract(parse_built_in(file))) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

void check_machine_keys(const Node& machine) {
  check_profile_keys(machine, Format::kMachine);
}

Profile load_profile(std::string_view name, const Place& asked_at) {
  return load_profile(name, Node{}, asked_at);
}

Profile load_profile(std::string_view name, const Node& machine, const Place& asked_at) {
  check_machine_keys(machine);
  Node tree = resolved_tree(name, asked_at);
  if (is_abstract(tree)) throw no_such_profile(name, asked_at);
  overlay_profile(tree, machine);
  return finished(tree, name);
}

}  // namespace faultline::arch
