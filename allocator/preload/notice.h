// SPDX-License-Identifier: Apache-2.0
//
// What the library says to its user: on stderr, without allocating, since it is inside the
// first call of malloc.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <initializer_list>
#include <string_view>

namespace faultline::preload {

// One line of at most eight parts.  Nobody is left to tell if it can't be written.
inline void notice(std::initializer_list<std::string_view> parts) {
  std::array<iovec, 10> line;
  std::size_t n = 0;
  const auto add = [&](std::string_view part) {
    line[n++] = {const_cast<char*>(part.data()), part.size()};
  };
  add("faultline: ");
  for (const std::string_view part : parts)
    if (n + 1 < line.size()) add(part);
  add("\n");
  const auto written = writev(STDERR_FILENO, line.data(), static_cast<int>(n));
  static_cast<void>(written);
}

}  // namespace faultline::preload
