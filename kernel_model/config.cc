// SPDX-License-Identifier: Apache-2.0
//
// Kernel versions as numbers.
#include "kernel_model/config.h"

#include <charconv>

namespace faultline::kernel {

unsigned KernelConfig::kernel_version(std::string_view text) {
  unsigned major = 0;
  unsigned minor = 0;
  const char* const end = text.data() + text.size();
  const auto after_major = std::from_chars(text.data(), end, major).ptr;
  if (after_major != end && *after_major == '.')
    std::from_chars(after_major + 1, end, minor);
  return major * 1000 + minor;
}

}  // namespace faultline::kernel
