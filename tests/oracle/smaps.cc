// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/smaps.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace faultline::oracle {
namespace {

// Soft-dirty is a matter of the kernel's configuration, not of its version.
std::string known_flags(const std::string& line) {
  std::istringstream in(line);
  std::string out;
  for (std::string f; in >> f;)
    if (f != "sd") out += f + " ";
  return out;
}

}  // namespace

std::vector<VmaState> parse_smaps(const std::string& text) {
  std::vector<VmaState> vmas;
  VmaState* vma = nullptr;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    unsigned long start = 0, end = 0;
    char perms[8] = "", name[64] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %63s", &start, &end, perms,
                    name) >= 3) {
      vma = nullptr;
      if (end <= kWindowStart || start >= kWindowStart + kWindowBytes) continue;
      vmas.push_back({});
      vma = &vmas.back();
      vma->start = start - kWindowStart;
      vma->end = end - kWindowStart;
      vma->perms = perms;
      vma->name = std::string(name).starts_with("[") ? name : "";
      continue;
    }
    if (vma == nullptr) continue;
    const std::size_t colon = line.find(':');
    const std::string key = line.substr(0, colon);
    const std::string rest = line.substr(colon + 1);
    if (key == "VmFlags") vma->flags = known_flags(rest);
    for (std::size_t i = 0; i < kSmapsFields.size(); ++i)
      if (key == kSmapsFields[i]) vma->fields[i] = std::strtoull(rest.c_str(), nullptr, 10);
  }
  return vmas;
}

}  // namespace faultline::oracle
