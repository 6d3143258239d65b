// SPDX-License-Identifier: Apache-2.0
//
// Which allocators a scenario can name, and in which releases.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace faultline::scenario {

struct AllocatorDecl {
  std::string_view name;
  std::vector<std::string> releases;
  std::string default_release;
  std::vector<std::string> keys;  // of [allocator]: its own, beside these two
};

[[nodiscard]] const std::vector<AllocatorDecl>& all_allocators();
[[nodiscard]] std::vector<std::string> allocator_names();

}  // namespace faultline::scenario
