// SPDX-License-Identifier: Apache-2.0
//
// What the user wrote and we can't accept: where it stands, what is wrong, what would be
// right.
//
// Thrown while input is read, before anything runs, and caught in main.cc alone (exit
// status 2). It prints as
//
//   first.toml:14:3: unknown key "page-size" in [machine]
//     did you mean "page_size"?
//     accepted: cpus, page_size, profile
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace faultline {

// A place in the input.  Line 0: the whole of `file`, which may be an option such as
// `--set machine.cpus=0`.
struct Place {
  std::string file;
  unsigned line = 0, column = 0;
  [[nodiscard]] std::string text() const;  // "first.toml:14:3"
};

struct Complaint {
  Place place;
  std::string key;                    // dotted name of the setting; may be empty
  std::string message;                // one line
  std::string hint;                   // one line; may be empty
  std::vector<std::string> accepted;  // values or names; may be empty
};

class InputError : public std::runtime_error {
 public:
  explicit InputError(Complaint complaint);
  [[nodiscard]] const Complaint& complaint() const { return complaint_; }

 private:
  Complaint complaint_;
};

// The name closest to `word`, if one is close enough to be a likely slip.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view word,
                                                      std::span<const std::string> names);
// "did you mean \"page_size\"?", or empty.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string> names);

}  // namespace faultline
