// SPDX-License-Identifier: Apache-2.0
//
// GLIBC_TUNABLES for malloc: "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0" to
// Settings, and MALLOC_ARENA_MAX=2 and its sisters.
//
// What glibc doesn't know or can't read it passes over without a word (to 2.38) or with a
// warning; so does this, and tells whoever wants to know what was passed over.
//
// To 2.38: a pair without "=" is skipped, or ends the reading if it is the last; of a value
// its number counts as far as it goes ("4k" is 4, "k" is 0, "-1" the largest).  From 2.39
// one pair without "=", or with two, spoils all of them, and a value must be a number.
// 2.23 has no tunables.
//
// Stands for: elf/dl-tunables.c, elf/dl-tunables.list, _dl_strtoul (elf/dl-minimal.c) and
// ptmalloc_init (malloc/arena.c), glibc 2.23-2.44.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/ptmalloc/release.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

enum class TunableFault : std::uint8_t {
  kNoValue,         // a pair without "=", or with two
  kAllIgnored,      // … which spoils the others
  kNoTunables,      // the release has none at all
  kUnknown,         // no tunable of malloc's, in any release
  kNotOfRelease,    // one of other releases
  kPartOfANumber,   // only the beginning of the value was read
  kNotANumber,      // the value counts for nothing
  kOutOfRange,      // the value is not allowed
  kNoSuchVariable,  // malloc reads no such environment variable
};
struct TunableNote {
  TunableFault fault;
  std::string_view name, value;
};
using TellNote = void (*)(void* arg, const TunableNote& note);

// As the release takes them from the environment.  Doesn't allocate.
void apply_tunables(std::string_view text, const ReleaseProfile& release,
                    Settings& settings, TellNote tell = nullptr, void* arg = nullptr);
// MALLOC_ARENA_MAX=… and its sisters; GLIBC_TUNABLES goes over them, whatever the order.
void apply_variable(std::string_view name, std::string_view value,
                    const ReleaseProfile& release, Settings& settings,
                    TellNote tell = nullptr, void* arg = nullptr);

// The same for a scenario, with what was passed over as sentences.
struct TunablesResult {
  Settings settings;
  std::vector<std::string> notes;  // empty: all were good
};
struct Environment {
  std::string name, value;
};
[[nodiscard]] TunablesResult parse_tunables(std::string_view text,
                                            const ReleaseProfile& release,
                                            const std::vector<Environment>& variables = {});

}  // namespace faultline::alloc
