// SPDX-License-Identifier: Apache-2.0
//
// What each word after "faultline" does.  Each returns the exit status and throws
// InputError for what the user has to mend.
#pragma once

#include <string>
#include <vector>

namespace faultline::cli {

[[nodiscard]] int run_command(const std::vector<std::string>& args);
[[nodiscard]] int native_command(const std::vector<std::string>& args);
[[nodiscard]] int list_command(const std::vector<std::string>& args);
[[nodiscard]] int show_command(const std::vector<std::string>& args);

}  // namespace faultline::cli
