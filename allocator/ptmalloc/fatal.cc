// SPDX-License-Identifier: Apache-2.0
#include "allocator/ptmalloc/fatal.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace faultline::alloc {

void malloc_printerr(const char* message) {
  const auto written =
      write(STDERR_FILENO, message, std::strlen(message)) + write(STDERR_FILENO, "\n", 1);
  static_cast<void>(written);
  std::abort();
}

}  // namespace faultline::alloc
