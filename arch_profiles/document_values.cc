// SPDX-License-Identifier: Apache-2.0
//
// Nodes to typed values, with one wording for each kind of mistake.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "arch_profiles/document.h"

namespace faultline {
namespace {

std::string described(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kText:
    case Node::Kind::kWord:
      return "\"" + node.text + "\"";
    case Node::Kind::kInteger:
      return "the integer " + node.text;
    case Node::Kind::kReal:
      return "the number " + node.text;
    case Node::Kind::kBoolean:
      return "the boolean " + node.text;
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kTable:
      return "a table";
  }
  return {};
}

[[noreturn]] void refuse(const Node& node, std::string_view key, std::string message,
                         std::string hint = {}, std::vector<std::string> accepted = {}) {
  throw InputError({node.place, std::string(key), std::move(message), std::move(hint),
                    std::move(accepted)});
}

[[noreturn]] void refuse_type(const Node& node, std::string_view key,
                              std::string_view wanted, std::string hint = {}) {
  refuse(node, key,
         std::string(key) + " must be " + std::string(wanted) + ", not " + described(node),
         std::move(hint));
}

bool parse_integer(std::string_view text, std::int64_t& value) {
  int base = 10;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  const Entry* entry = find_entry(key);
  return entry == nullptr ? nullptr : &entry->value;
}

const Entry* Node::find_entry(std::string_view key) const {
  for (const Entry& entry : entries)
    if (entry.key == key) return &entry;
  return nullptr;
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

InputError unknown_key(const Entry& entry, std::string_view where,
                       std::span<const std::string> known) {
  return InputError({entry.key_place, entry.key,
                     "unknown key \"" + entry.key + "\" in " + std::string(where),
                     did_you_mean(entry.key, known),
                     std::vector<std::string>(known.begin(), known.end())});
}

void check_keys(const Node& table, std::string_view where,
                std::span<const std::string> known) {
  for (const Entry& entry : table.entries)
    if (std::find(known.begin(), known.end(), entry.key) == known.end())
      throw unknown_key(entry, where, known);
}

const Node& require(const Node& table, std::string_view key, std::string_view where,
                    std::span<const std::string> accepted) {
  const Node* node = table.find(key);
  if (node == nullptr)
    throw InputError({table.place,
                      std::string(key),
                      "missing key \"" + std::string(key) + "\" in " + std::string(where),
                      {},
                      {accepted.begin(), accepted.end()}});
  return *node;
}

const Node& as_table(const Node& node, std::string_view key) {
  if (!node.is_table()) refuse_type(node, key, "a table");
  return node;
}

const std::vector<Node>& as_list(const Node& node, std::string_view key) {
  if (node.kind != Node::Kind::kList) refuse_type(node, key, "a list");
  return node.items;
}

std::string as_text(const Node& node, std::string_view key) {
  if (node.kind == Node::Kind::kText || node.kind == Node::Kind::kWord) return node.text;
  const bool scalar = node.kind != Node::Kind::kList && node.kind != Node::Kind::kTable;
  refuse_type(node, key, "a text", scalar ? "put it in quotes" : "");
}

bool as_boolean(const Node& node, std::string_view key) {
  if (node.kind == Node::Kind::kBoolean) return node.boolean;
  if (node.kind == Node::Kind::kWord && node.text == "true") return true;
  if (node.kind == Node::Kind::kWord && node.text == "false") return false;
  refuse_type(node, key, "true or false");
}

std::int64_t as_integer(const Node& node, std::string_view key, std::int64_t min,
                        std::int64_t max) {
  std::int64_t value = node.integer;
  const bool good = node.kind == Node::Kind::kInteger ||
                    (node.kind == Node::Kind::kWord && parse_integer(node.text, value));
  if (!good) refuse_type(node, key, "an integer");
  if (value >= min && value <= max) return value;
  const bool open = max == std::numeric_limits<std::int64_t>::max();
  refuse(node, key,
         std::string(key) + " must be " +
             (open ? "at least " + std::to_string(min)
                   : "between " + std::to_string(min) + " and " + std::to_string(max)) +
             ", not " + std::to_string(value));
}

double as_number(const Node& node, std::string_view key) {
  if (node.kind == Node::Kind::kInteger) return static_cast<double>(node.integer);
  double value = 0;
  const bool written_as_number =
      node.kind == Node::Kind::kReal || node.kind == Node::Kind::kWord;
  if (written_as_number && parse_number(node.text, value)) return value;
  refuse_type(node, key, "a number");
}

std::size_t as_choice(const Node& node, std::string_view key,
                      std::span<const std::string> accepted, std::string_view what) {
  const std::string text = as_text(node, key);
  const auto found = std::find(accepted.begin(), accepted.end(), text);
  if (found != accepted.end()) return static_cast<std::size_t>(found - accepted.begin());
  refuse(node, key,
         std::string(key) + ": there is no " + std::string(what) + " \"" + text + "\"",
         did_you_mean(text, accepted), {accepted.begin(), accepted.end()});
}

std::uint64_t as_quantity(const Node& node, std::string_view key, Dimension dimension) {
  const bool is_text = node.kind == Node::Kind::kText || node.kind == Node::Kind::kWord;
  if (!is_text && node.kind != Node::Kind::kInteger && node.kind != Node::Kind::kReal)
    refuse_type(node, key, "a text with a unit");
  const Quantity quantity = parse_quantity(node.text, dimension);
  if (quantity.ok()) return quantity.value;
  refuse(node, key, std::string(key) + ": " + quantity.problem, {}, units_of(dimension));
}

Duration as_duration(const Node& node, std::string_view key) {
  return Duration::ps(static_cast<std::int64_t>(as_quantity(node, key, Dimension::kTime)));
}

}  // namespace faultline
