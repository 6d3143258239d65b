// SPDX-License-Identifier: Apache-2.0
//
// Numbers for random tests, the same everywhere: xorshift64.
#pragma once

#include <cstdint>

namespace faultline::testing {

struct Random {
  std::uint64_t state;  // not 0
  std::uint64_t below(std::uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
  }
};

}  // namespace faultline::testing
