// SPDX-License-Identifier: Apache-2.0
//
// The options, for conf.cc and conf_report.cc alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "allocator/jemalloc/settings.h"

namespace faultline::alloc::je {

struct Option {
  std::string_view name;
  std::int64_t min = 0, max = 0;            // of a number
  std::span<const std::string_view> words;  // or one of these; its index is the value
  void (*set)(Settings&, std::int64_t);
};

[[nodiscard]] std::span<const Option> options();     // of 3.3
[[nodiscard]] std::span<const Option> options_53();  // of 5.3
[[nodiscard]] const Option* find_option(std::span<const Option> table,
                                        std::string_view name);
// The value that the option would get; none: it is no number within the limits, or none of
// the words.
[[nodiscard]] std::optional<std::int64_t> option_value(const Option& option,
                                                       std::string_view text);
// Cuts the first "name:value" off `text`.
struct ConfPair {
  std::string_view name, value;
  bool has_value = false;
};
[[nodiscard]] ConfPair next_pair(std::string_view& text);

}  // namespace faultline::alloc::je
