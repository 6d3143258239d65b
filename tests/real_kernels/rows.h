// SPDX-License-Identifier: Apache-2.0
//
// What mmprobe measured on real kernels: one row a phase of a test.  See README.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace faultline::real_kernels {

struct Row {
  std::string phase;
  std::map<std::string, std::int64_t>
      delta;  // kB and counts; a counter that isn't named didn't change

  [[nodiscard]] std::int64_t at(const std::string& counter) const {
    const auto it = delta.find(counter);
    return it == delta.end() ? 0 : it->second;
  }
};

// The phases of one run of one test, in order.
struct Case {
  std::string test, mode;  // "perthp", "always"
  std::vector<Row> rows;
  std::string note;  // what the test printed besides
};

struct DataFile {
  std::string name;    // "arm64-64k"
  std::string preset;  // "6.1"
  std::uint64_t mem_total_kb = 0;
  unsigned cpus = 1;
  std::vector<std::uint64_t> buddyinfo;  // if the machine has one zone
  std::vector<Case> cases;

  // The note of a test in a mode; empty if there is none.
  [[nodiscard]] std::string note_of(const std::string& test, const std::string& mode) const;
};

[[nodiscard]] const std::vector<std::string>& file_names();
// Measured on a machine in use, with randomised addresses.
inline constexpr const char* kNativeFile = "x86-4k-6.18";
// Reads tests/real_kernels/data/NAME.jsonl; the tests run in the source folder.
[[nodiscard]] DataFile read_file(const std::string& name);

}  // namespace faultline::real_kernels
