// SPDX-License-Identifier: Apache-2.0
// How a failed check speaks.
#include "sim/check.h"

#include <cstdio>
#include <cstdlib>

namespace faultline::check {

void fail(const char* file, int line, std::string_view expression,
          std::string_view details) {
  std::fprintf(stderr, "%s:%d: check failed: %.*s", file, line,
               static_cast<int>(expression.size()), expression.data());
  if (!details.empty())
    std::fprintf(stderr, " (%.*s)", static_cast<int>(details.size()), details.data());
  std::fputc('\n', stderr);
  std::fflush(stderr);
  std::abort();
}

std::string text(Duration d) {
  return std::to_string(d.count_ps()) + " ps";
}
std::string text(Time t) {
  return "t=" + text(t.since_start());
}

std::string pointer_text(const void* p) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%p", p);
  return buffer;
}

}  // namespace faultline::check
