// SPDX-License-Identifier: Apache-2.0
//
// Rows that can't equal the model, each with its reason: exceptions.txt.
//
// A line: FILE TEST MODE PHASE COUNTER[,COUNTER…] REASON, '*' for any; PHASE may be NAME#2
// for the second of that name.  An exception that nothing needs any more fails the test.
#pragma once

#include <string>
#include <vector>

namespace faultline::real_kernels {

struct Exception {
  std::string file, test, mode, phase, counters, reason;
  unsigned line = 0;
  [[nodiscard]] bool covers(const std::string& file_name, const std::string& test_name,
                            const std::string& thp_mode, const std::string& phase_name,
                            const std::string& counter) const;
};

[[nodiscard]] std::vector<Exception> read_exceptions();

}  // namespace faultline::real_kernels
