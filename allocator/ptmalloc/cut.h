// SPDX-License-Identifier: Apache-2.0
//
// std::string_view::substr without its exception, for code that must do without libstdc++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace faultline::alloc {

// `count` characters from `from` on, as far as there are any.
constexpr std::string_view cut(std::string_view text, std::size_t from,
                               std::size_t count = std::string_view::npos) {
  from = std::min(from, text.size());
  return {text.data() + from, std::min(count, text.size() - from)};
}

}  // namespace faultline::alloc
