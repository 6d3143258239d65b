// SPDX-License-Identifier: Apache-2.0
//
// /proc/PID/vrange of v7: the volatile ranges of a process.
#pragma once

#include <string>

namespace faultline::kernel {

class Mm;

// One line a range, in order of addresses: "7f0000000000-7f0000080000 purged", or "intact".
// Model: the patch's own format isn't known.
[[nodiscard]] std::string vrange_text(Mm& mm);

}  // namespace faultline::kernel
