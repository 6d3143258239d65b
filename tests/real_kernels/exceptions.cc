// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/exceptions.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace faultline::real_kernels {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  return pattern == "*" || pattern == text;
}

bool in_list(const std::string& list, const std::string& word) {
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');)
    if (matches(item, word)) return true;
  return false;
}

}  // namespace

bool Exception::covers(const std::string& file_name, const std::string& test_name,
                       const std::string& thp_mode, const std::string& phase_name,
                       const std::string& counter) const {
  return matches(file, file_name) && matches(test, test_name) && matches(mode, thp_mode) &&
         matches(phase, phase_name) && in_list(counters, counter);
}

std::vector<Exception> read_exceptions() {
  const std::string path = "tests/real_kernels/exceptions.txt";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("can't read " + path);
  std::vector<Exception> all;
  unsigned number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.empty() || text[0] == '#') continue;
    Exception e;
    std::istringstream words(text);
    words >> e.file >> e.test >> e.mode >> e.phase >> e.counters;
    std::getline(words >> std::ws, e.reason);
    if (e.reason.empty())
      throw std::runtime_error(path + ":" + std::to_string(number) + ": no reason");
    e.line = number;
    all.push_back(e);
  }
  return all;
}

}  // namespace faultline::real_kernels
