// SPDX-License-Identifier: Apache-2.0
//
// Tunables as a scenario has them: what glibc would pass over is said.
#include <cstdint>

#include "allocator/ptmalloc/tunable_table.h"
#include "allocator/ptmalloc/tunables.h"

namespace faultline::alloc {
namespace {

std::string range(const Tunable& t) {
  return t.max == kNoTunableLimit ? "at least " + std::to_string(t.min)
                                  : std::to_string(t.min) + " to " + std::to_string(t.max);
}

std::string sentence(const TunableNote& note, const ReleaseProfile& release) {
  const std::string name = '"' + std::string(note.name) + '"';
  const std::string value = '"' + std::string(note.value) + '"';
  const std::string glibc = "glibc " + std::string(release.name);
  switch (note.fault) {
    case TunableFault::kNoValue:
      return name + " is no tunable with its value: " + glibc + " passes over it";
    case TunableFault::kAllIgnored:
      return "so " + glibc + " passes over all of " + name;
    case TunableFault::kNoTunables:
      return glibc + " has no tunables and passes over " + name;
    case TunableFault::kUnknown:
      return "malloc has no tunable " + name + ": " + glibc + " passes over it";
    case TunableFault::kNotOfRelease:
      return glibc + " has no tunable " + name + " and passes over it";
    case TunableFault::kPartOfANumber:
      return glibc + " reads " + std::to_string(tunable_number(note.value).value) +
             " for " + std::string(note.name) + "=" + value;
    case TunableFault::kNotANumber:
      return std::string(note.name) + "=" + value + " is no number: " + glibc +
             " passes over it";
    case TunableFault::kOutOfRange: {
      const Tunable* const t = find_tunable(note.name);
      return std::string(note.name) + "=" + value + " is out of range" +
             (t == nullptr ? "" : " (" + range(*t) + ")") + ": " + glibc +
             " passes over it";
    }
    case TunableFault::kNoSuchVariable:
      return "malloc reads no variable " + name;
  }
  return {};
}

}  // namespace

TunablesResult parse_tunables(std::string_view text, const ReleaseProfile& release,
                              const std::vector<Environment>& variables) {
  TunablesResult out;
  struct Notes {
    const ReleaseProfile& release;
    std::vector<std::string>& all;
  } notes{release, out.notes};
  const TellNote tell = [](void* arg, const TunableNote& note) {
    auto& n = *static_cast<Notes*>(arg);
    n.all.push_back(sentence(note, n.release));
  };
  for (const Environment& v : variables)
    apply_variable(v.name, v.value, release, out.settings, tell, &notes);
  apply_tunables(text, release, out.settings, tell, &notes);
  return out;
}

}  // namespace faultline::alloc
