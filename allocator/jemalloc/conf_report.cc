// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/conf.h"
#include "allocator/jemalloc/conf_table.h"

namespace faultline::alloc::je {
namespace {

ConfResult unknown_option(std::span<const Option> table, std::string_view name) {
  ConfResult out;
  out.unknown = name;
  out.problem = "unknown option \"" + out.unknown + "\"";
  for (const Option& o : table) out.accepted.emplace_back(o.name);
  return out;
}

ConfResult bad_value(const Option& option, std::string_view value) {
  ConfResult out;
  const std::string name(option.name);
  if (option.words.empty()) {
    out.problem = name + ": \"" + std::string(value) + "\" is not a number from " +
                  std::to_string(option.min) + " to " + std::to_string(option.max);
    return out;
  }
  out.unknown = value;
  out.problem = name + ": \"" + out.unknown + "\" is not one of its values";
  for (const std::string_view word : option.words) out.accepted.emplace_back(word);
  return out;
}

ConfResult parse(std::span<const Option> table, std::string_view text) {
  ConfResult out;
  while (!text.empty()) {
    const ConfPair pair = next_pair(text);
    const Option* const option = find_option(table, pair.name);
    if (option == nullptr) return unknown_option(table, pair.name);
    if (!pair.has_value) {
      out.problem = "\"" + std::string(pair.name) + "\" has no value";
      return out;
    }
    const auto value = option_value(*option, pair.value);
    if (!value) return bad_value(*option, pair.value);
    option->set(out.settings, *value);
  }
  return out;
}

}  // namespace

ConfResult parse_conf(std::string_view text) {
  return parse(options(), text);
}
ConfResult parse_conf_53(std::string_view text) {
  return parse(options_53(), text);
}

}  // namespace faultline::alloc::je
