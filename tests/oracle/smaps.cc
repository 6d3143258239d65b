// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/smaps.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace faultline::oracle {
namespace {

// VmFlags that a program can see a difference by.
bool known_flag(std::string_view f) {
  static constexpr std::array<std::string_view, 14> kKnown = {
      "rd", "wr", "ex", "sh", "lo", "ac", "nr", "ht", "hg", "nh", "dc", "wf", "dd", "gd"};
  return std::find(kKnown.begin(), kKnown.end(), f) != kKnown.end();
}

std::string known_flags(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> flags;
  for (std::string f; in >> f;)
    if (known_flag(f)) flags.push_back(f);
  std::sort(flags.begin(), flags.end());
  std::string out;
  for (const std::string& f : flags) out += f + " ";
  return out;
}

}  // namespace

std::vector<VmaState> parse_smaps(const std::string& text) {
  std::vector<VmaState> vmas;
  VmaState* vma = nullptr;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    unsigned long start = 0, end = 0;
    char perms[8] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, perms) == 3) {
      vma = nullptr;
      if (end <= kWindowStart || start >= kWindowStart + kWindowBytes) continue;
      vmas.push_back({});
      vma = &vmas.back();
      vma->start = start - kWindowStart;
      vma->end = end - kWindowStart;
      vma->perms = perms;
      continue;
    }
    if (vma == nullptr) continue;
    const std::size_t colon = line.find(':');
    const std::string key = line.substr(0, colon);
    const std::string rest = line.substr(colon + 1);
    const auto kb = [&] { return std::strtoull(rest.c_str(), nullptr, 10); };
    if (key == "Rss")
      vma->rss = kb();
    else if (key == "Anonymous")
      vma->anonymous = kb();
    else if (key == "LazyFree")
      vma->lazyfree = kb();
    else if (key == "AnonHugePages")
      vma->anon_huge = kb();
    else if (key == "VmFlags")
      vma->flags = known_flags(rest);
  }
  return vmas;
}

}  // namespace faultline::oracle
