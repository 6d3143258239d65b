// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/presets/presets.h"

#include <algorithm>

#include "kernel_model/presets/embedded.h"
#include "kernel_model/presets/switches.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

const Switch& find_switch(std::string_view key) {
  const auto all = all_switches();
  const auto it = std::ranges::lower_bound(all, key, {}, &Switch::key);
  FAULTLINE_CHECK(it != all.end() && it->key == key);
  return *it;
}

Node read_preset(std::string_view name) {
  for (const EmbeddedFile& file : embedded_presets())
    if (file.name == name) return parse_toml(file.text, std::string(name) + ".toml");
  FAULTLINE_CHECK(!"no preset of that name");
  return {};
}

// Turns every switch in `table`; `prefix` is the dotted key so far.
void apply(KernelConfig& config, const Node& table, const std::string& prefix) {
  for (const Entry& entry : table.entries) {
    const std::string key = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (key == "title") continue;
    if (entry.value.is_table()) {
      apply(config, entry.value, key);
      continue;
    }
    const auto& keys = switch_keys();
    if (!std::ranges::binary_search(keys, key))
      throw InputError({entry.key_place, key, "unknown switch \"" + key + "\"",
                        did_you_mean(key, keys), keys});
    set_switch(config, key, entry.value);
  }
}

}  // namespace

std::vector<std::string> list_presets() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_presets()) names.emplace_back(file.name);
  return names;
}

std::string preset_title(std::string_view name) {
  const Node preset = read_preset(name);
  return as_text(require(preset, "title", "preset"), "title");
}

KernelConfig load_preset(std::string_view name) {
  KernelConfig config;
  config.preset = name;
  apply(config, read_preset(name), "");
  return config;
}

const std::vector<std::string>& switch_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> v;
    for (const Switch& s : all_switches()) v.emplace_back(s.key);
    return v;
  }();
  return keys;
}

void set_switch(KernelConfig& config, std::string_view key, const Node& value) {
  find_switch(key).set(config, value, "kernel." + std::string(key));
}

std::vector<SwitchValue> describe(const KernelConfig& config) {
  std::vector<SwitchValue> values;
  for (const Switch& s : all_switches())
    values.push_back({std::string(s.key), s.get(config), std::string(s.about)});
  return values;
}

}  // namespace faultline::kernel
