// SPDX-License-Identifier: Apache-2.0
//
// A TOML document as a tree of nodes that know where they stand, and the typed reading of
// it.
//
// Profiles, kernel presets and scenarios are all read through this file, so that a wrong
// key or value gets the same message everywhere.  Every `as_…` throws InputError with the
// node's place, the dotted `key` and what would be accepted.  toml++ itself is seen by
// document.cc alone.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch_profiles/input_error.h"
#include "arch_profiles/units.h"
#include "sim/time.h"

namespace faultline {

struct Entry;

struct Node {
  // kWord: a bare word from the command line, which reads as whatever type is asked for.
  enum class Kind : std::uint8_t { kText, kInteger, kReal, kBoolean, kList, kTable, kWord };
  Kind kind = Kind::kTable;
  Place place;
  std::string text;  // kText, kWord: the value; numbers and booleans: as written
  std::int64_t integer = 0;
  bool boolean = false;
  std::vector<Node> items;     // kList
  std::vector<Entry> entries;  // kTable, in the order of the file

  [[nodiscard]] bool is_table() const { return kind == Kind::kTable; }
  [[nodiscard]] const Node* find(std::string_view key) const;
  [[nodiscard]] const Entry* find_entry(std::string_view key) const;
};

struct Entry {
  std::string key;
  Place key_place;
  Node value;
};

[[nodiscard]] Node parse_toml(std::string_view text, const std::string& file);
// The value of `--set key=value`: a TOML list or inline table if it looks like one, else a
// word.
[[nodiscard]] Node parse_word(std::string_view text, const Place& place);
// Lays `top` over `bottom`: tables key by key, anything else replaced.  A table that says
// how far to trust its value (a cost) is replaced whole: a new value never stands beside
// the old source.
void overlay(Node& bottom, const Node& top);
// The text of a file; InputError if it can't be read.  `asked_at`: who named it.
[[nodiscard]] std::string read_file(const std::string& path, const Place& asked_at);

// Refuses a key that isn't in `known`.  `where` names the table in the message:
// "[machine]".
void check_keys(const Node& table, std::string_view where,
                std::span<const std::string> known);
[[nodiscard]] InputError unknown_key(const Entry& entry, std::string_view where,
                                     std::span<const std::string> known);
// The entry's node; InputError if it's missing, with what would be accepted.
[[nodiscard]] const Node& require(const Node& table, std::string_view key,
                                  std::string_view where,
                                  std::span<const std::string> accepted = {});

[[nodiscard]] const Node& as_table(const Node& node, std::string_view key);
[[nodiscard]] const std::vector<Node>& as_list(const Node& node, std::string_view key);
[[nodiscard]] std::string as_text(const Node& node, std::string_view key);
[[nodiscard]] bool as_boolean(const Node& node, std::string_view key);
[[nodiscard]] std::int64_t as_integer(
    const Node& node, std::string_view key,
    std::int64_t min = std::numeric_limits<std::int64_t>::min(),
    std::int64_t max = std::numeric_limits<std::int64_t>::max());
// A number, with or without a fraction.
[[nodiscard]] double as_number(const Node& node, std::string_view key);
// Index into `accepted`.  `what` says what it is a value of: "kernel preset".
[[nodiscard]] std::size_t as_choice(const Node& node, std::string_view key,
                                    std::span<const std::string> accepted,
                                    std::string_view what = "value");
[[nodiscard]] std::uint64_t as_quantity(const Node& node, std::string_view key,
                                        Dimension dimension);
[[nodiscard]] inline std::uint64_t as_size(const Node& node, std::string_view key) {
  return as_quantity(node, key, Dimension::kSize);
}
[[nodiscard]] Duration as_duration(const Node& node, std::string_view key);

}  // namespace faultline
