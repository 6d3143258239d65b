// SPDX-License-Identifier: Apache-2.0
//
// The files of the whole machine as this machine's own kernel prints them, where that is
// one that has a preset: names, their order, and where each number ends.
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernel_model/proc/system_views.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

std::vector<std::string> lines_of(std::istream&& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string name_of(const std::string& line) {
  return line.substr(0, line.find_first_of(" :"));
}

// Lines that only some configurations of the kernel print, so this machine's may lack them.
bool may_lack(const std::string& name) {
  return name.starts_with("vma_lock_") || name.starts_with("thp_") ||
         name.starts_with("htlb_") || name.starts_with("Huge") ||
         name.starts_with("AnonHuge") || name.starts_with("compact_");
}

class LiveFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    utsname host{};
    uname(&host);
    release_ = host.release;
    if (!release_.starts_with("6.18.") || std::string_view{host.machine} != "x86_64")
      GTEST_SKIP() << "this machine runs " << host.machine << ' ' << release_
                   << "; compared is 6.18 on x86-64";
  }
  std::string release_;
};

// Each line that both print stands in the same order and, if padded, ends its number in the
// same column; what the model prints the kernel prints, too.
void expect_same_form(const std::string& model, const char* live, bool padded) {
  const std::vector<std::string> theirs = lines_of(std::ifstream(live));
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < theirs.size(); ++i) place[name_of(theirs[i])] = i;
  ASSERT_FALSE(theirs.empty()) << live;
  std::size_t last = 0, compared = 0;
  for (const std::string& line : lines_of(std::istringstream(model))) {
    const auto found = place.find(name_of(line));
    if (found == place.end()) {
      EXPECT_TRUE(may_lack(name_of(line))) << live << " has no line " << line;
      continue;
    }
    EXPECT_GE(found->second, last) << line << ": the kernel prints it earlier";
    last = found->second;
    ++compared;
    const std::string& his = theirs[found->second];
    const std::size_t end = line.find_last_of("0123456789"),
                      his_end = his.find_last_of("0123456789");
    EXPECT_EQ(line.substr(end + 1), his.substr(his_end + 1)) << line << '\n' << his;
    // (VmallocTotal has more digits than its columns.)
    const bool fits = his_end < 24;
    if (padded && fits) {
      EXPECT_EQ(end, his_end) << line << "\n" << his;
    }
  }
  EXPECT_GE(compared, 20U) << live;
}

TEST_F(LiveFormats, MeminfoAndVmstat) {
  Machine m("x86-4k", "6.18");
  expect_same_form(meminfo_text(m.kernel()), "/proc/meminfo", true);
  expect_same_form(vmstat_text(m.kernel()), "/proc/vmstat", false);
}

// "Node 0, zone   Normal      1 …": 30 columns of names, then eleven numbers of 7 columns,
// each with a blank behind it as long as none has more than six digits.
TEST_F(LiveFormats, Buddyinfo) {
  Machine m("x86-4k", "6.18");
  const std::vector<std::string> ours =
      lines_of(std::istringstream(buddyinfo_text(m.kernel())));
  const std::vector<std::string> theirs = lines_of(std::ifstream("/proc/buddyinfo"));
  ASSERT_FALSE(ours.empty());
  const auto normal = std::find_if(
      theirs.begin(), theirs.end(),
      [](const std::string& line) { return line.find("Normal") != std::string::npos; });
  if (normal == theirs.end()) GTEST_SKIP() << "no zone Normal here";
  EXPECT_EQ(ours.front().size(), normal->size());
  const std::size_t names = normal->find("Normal") + 6;
  EXPECT_EQ(ours.front().substr(0, names), normal->substr(0, names));
  EXPECT_EQ(ours.front().back(), normal->back());
}

}  // namespace
}  // namespace faultline::kernel
