// SPDX-License-Identifier: Apache-2.0
//
// Tunables as a scenario has them: what can't be done is said.
#include <cstdint>
#include <optional>

#include "allocator/ptmalloc/tunable_table.h"
#include "allocator/ptmalloc/tunables.h"

namespace faultline::alloc {
namespace {

std::string range(const Tunable& t) {
  return t.max == kNoTunableLimit ? "at least " + std::to_string(t.min)
                                  : std::to_string(t.min) + " to " + std::to_string(t.max);
}

// One NAME=VALUE.
void apply(std::string_view pair, const ReleaseProfile& release, TunablesResult& out) {
  const std::size_t equals = pair.find('=');
  const std::string name(pair.substr(0, equals));
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
    out.problem = "\"" + std::string(pair) + "\" is not a tunable with its value";
    return;
  }
  const Tunable* const tunable = find_tunable(name);
  if (tunable == nullptr || !tunable->known_to(release)) {
    out.problem = tunable == nullptr
                      ? "unknown tunable \"" + name + "\""
                      : std::string(release.name) + " has no tunable \"" + name + "\"";
    out.unknown = name;
    for (const Tunable& t : tunables())
      if (t.known_to(release)) out.accepted.emplace_back(t.name);
    return;
  }
  const std::string_view text = pair.substr(equals + 1);
  const std::optional<std::uint64_t> value = tunable_number(text);
  if (!value || *value < tunable->min || *value > tunable->max) {
    out.problem =
        name + " can't be \"" + std::string(text) + "\": a number, " + range(*tunable);
    return;
  }
  tunable->set(out.settings, *value);
}

}  // namespace

TunablesResult parse_tunables(std::string_view text, const ReleaseProfile& release) {
  TunablesResult out;
  while (!text.empty() && out.problem.empty()) {
    const std::size_t colon = text.find(':');
    apply(text.substr(0, colon), release, out);
    text = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  }
  return out;
}

}  // namespace faultline::alloc
