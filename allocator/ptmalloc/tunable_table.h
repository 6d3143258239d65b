// SPDX-License-Identifier: Apache-2.0
//
// The list of malloc's tunables, for those who apply them and those who complain of them.
//
// Stands for: elf/dl-tunables.list (glibc 2.26-2.44).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "allocator/ptmalloc/release.h"
#include "allocator/ptmalloc/settings.h"

namespace faultline::alloc {

// What setting one does to Settings; the maximum is the list's.
struct Tunable {
  std::string_view name;
  std::uint64_t min, max;
  void (*set)(Settings&, std::uint64_t);
  bool (*known_to)(const ReleaseProfile&) = [](const ReleaseProfile&) { return true; };
};

inline constexpr std::uint64_t kNoTunableLimit = UINT64_MAX;

// By name.
[[nodiscard]] std::span<const Tunable> tunables();
// null: there is none of that name.
[[nodiscard]] const Tunable* find_tunable(std::string_view name);
// As _dl_strtoul: blanks, a sign, then decimal, 0x or octal as far as there are digits; too
// large is the largest.
struct TunableNumber {
  std::uint64_t value = 0;
  std::size_t length = 0;  // what was read of the text; 0: no number
};
[[nodiscard]] TunableNumber tunable_number(std::string_view text);

}  // namespace faultline::alloc
