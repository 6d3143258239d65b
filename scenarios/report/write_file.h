// SPDX-License-Identifier: Apache-2.0
//
// Files appear whole or not at all: they are written beside their place and renamed.
#pragma once

#include <string>
#include <string_view>

namespace faultline::report {

// "-" is standard output.  Throws InputError that blames `option` if the place can't be
// written.
void write_file(const std::string& path, std::string_view content,
                const std::string& option);

// Makes the folder if need be; the same complaint.
void make_folder(const std::string& path, const std::string& option);

// Asks beforehand whether write_file would succeed, as far as that can be known.
void check_writable(const std::string& path, const std::string& option);

}  // namespace faultline::report
