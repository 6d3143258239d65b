// SPDX-License-Identifier: Apache-2.0
//
// TOML text to nodes: the one file that includes toml++.
#include "arch_profiles/document.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace faultline {
namespace {

Place place_of(const toml::source_region& region, const std::string& file) {
  return {file, region.begin.line, region.begin.column};
}

Node converted(const toml::node& from, const std::string& file);

Node converted_table(const toml::table& from, const std::string& file) {
  Node node;
  node.kind = Node::Kind::kTable;
  for (const auto& [key, value] : from) {
    node.entries.push_back(
        {std::string(key.str()), place_of(key.source(), file), converted(value, file)});
  }
  // toml++ sorts by name; messages and listings follow the file.
  std::stable_sort(node.entries.begin(), node.entries.end(),
                   [](const Entry& a, const Entry& b) {
                     return std::pair(a.key_place.line, a.key_place.column) <
                            std::pair(b.key_place.line, b.key_place.column);
                   });
  return node;
}

Node converted(const toml::node& from, const std::string& file) {
  Node node;
  if (const auto* table = from.as_table()) {
    node = converted_table(*table, file);
  } else if (const auto* list = from.as_array()) {
    node.kind = Node::Kind::kList;
    for (const toml::node& item : *list) node.items.push_back(converted(item, file));
  } else if (const auto* text = from.as_string()) {
    node.kind = Node::Kind::kText;
    node.text = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.kind = Node::Kind::kInteger;
    node.integer = integer->get();
    node.text = std::to_string(node.integer);
  } else if (const auto* boolean = from.as_boolean()) {
    node.kind = Node::Kind::kBoolean;
    node.boolean = boolean->get();
    node.text = node.boolean ? "true" : "false";
  } else if (const auto* real = from.as_floating_point()) {
    node.kind = Node::Kind::kReal;
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), real->get());
    node.text.assign(digits, end.ptr);
  } else {
    node.kind = Node::Kind::kReal;  // a date or a time of day: nothing accepts one
    node.text = "that is a date";
  }
  node.place = place_of(from.source(), file);
  return node;
}

}  // namespace

Node parse_toml(std::string_view text, const std::string& file) {
  try {
    return converted(toml::parse(text, file), file);
  } catch (const toml::parse_error& error) {
    throw InputError(
        {place_of(error.source(), file), {}, std::string(error.description()), {}, {}});
  }
}

Node parse_word(std::string_view text, const Place& place) {
  Node node;
  if (!text.empty() && (text.front() == '[' || text.front() == '{')) {
    // Lines and columns inside the option say nothing that the option itself doesn't.
    try {
      node = *parse_toml("value = " + std::string(text), place.file).find("value");
    } catch (const InputError& error) {
      Complaint complaint = error.complaint();
      complaint.place = place;
      throw InputError(std::move(complaint));
    }
    const auto relocate = [&](auto&& self, Node& n) -> void {
      n.place = place;
      for (Node& item : n.items) self(self, item);
      for (Entry& entry : n.entries) {
        entry.key_place = place;
        self(self, entry.value);
      }
    };
    relocate(relocate, node);
    return node;
  }
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  node.kind = Node::Kind::kWord;
  node.text = text;
  node.place = place;
  return node;
}

std::string read_file(const std::string& path, const Place& asked_at) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || !text) throw InputError({asked_at, {}, "can't read the file " + path, {}, {}});
  return text.str();
}

}  // namespace faultline
