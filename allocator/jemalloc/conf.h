// SPDX-License-Identifier: Apache-2.0
//
// MALLOC_CONF: "lg_chunk:22,narenas:1,purge:vrange" to Settings.
//
// Model: jemalloc writes a warning about what it doesn't know and goes on; a scenario that
// asks for something gets it or is told that it can't, so that here it is a problem.
//
// Stands for: malloc_conf_init() (src/jemalloc.c, 3.3.1 and 5.3.0).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/jemalloc/settings.h"

namespace faultline::alloc::je {

struct ConfResult {
  Settings settings;
  std::string problem;                // empty: all were good
  std::vector<std::string> accepted;  // names or values, where that is the problem
  std::string unknown;                // the word that isn't among them
};
[[nodiscard]] ConfResult parse_conf(std::string_view text);
// The same for 5.3's options, as far as its adapter (jemalloc53/) takes them.
[[nodiscard]] ConfResult parse_conf_53(std::string_view text);

// As `purge` is written.
[[nodiscard]] std::string_view purge_name(Purge purge);

// As the library takes it from the environment: what it doesn't know or can't read is
// passed over, and `passed_over` is told of each such "name:value".  Doesn't allocate.
void apply_conf(std::string_view text, Settings& settings,
                void (*passed_over)(std::string_view pair));

}  // namespace faultline::alloc::je
