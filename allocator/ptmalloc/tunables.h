// SPDX-License-Identifier: Apache-2.0
//
// GLIBC_TUNABLES for malloc: "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0" to
// Settings.
//
// Model: glibc passes over what it doesn't know or can't read; a scenario that asks for
// something gets it or is told that it can't, so that here both are problems.
//
// Stands for: elf/dl-tunables.list and ptmalloc_init (malloc/arena.c), glibc 2.26-2.44.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/ptmalloc/release.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

struct TunablesResult {
  Settings settings;
  std::string problem;                // empty: all were good
  std::vector<std::string> accepted;  // names, where the problem is an unknown one
  std::string unknown;                // the unknown name
};

// For that release: the later ones are unknown to the earlier releases.
[[nodiscard]] TunablesResult parse_tunables(std::string_view text,
                                            const ReleaseProfile& release);

// As glibc takes them from the environment: what it doesn't know or can't read is passed
// over.  Doesn't allocate.
void apply_tunables(std::string_view text, const ReleaseProfile& release,
                    Settings& settings);
// MALLOC_ARENA_MAX=… and its sisters: `name` without the tunable's prefix.  False: there is
// no such variable.
bool apply_variable(std::string_view name, std::string_view value, Settings& settings);

}  // namespace faultline::alloc
