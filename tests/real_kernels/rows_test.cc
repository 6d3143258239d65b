// SPDX-License-Identifier: Apache-2.0
//
// Every row that was measured on a real kernel equals the model: one test for each run of
// mmprobe, named File/Test/Mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/real_kernels/exceptions.h"
#include "tests/real_kernels/probe.h"
#include "tests/real_kernels/rows.h"

namespace faultline::real_kernels {
namespace {

// What must be equal.  The native file's vmstat is that of a whole busy system.
const std::vector<std::string> kProcessCounters = {
    "minflt",       "Anonymous", "AnonHugePages", "LazyFree",
    "HugetlbPages", "VmPTE",     "VmSize",        "VmData"};
const std::vector<std::string> kGuestCounters = {
    "pgfault",       "thp_fault_alloc", "thp_fault_fallback",      "thp_collapse_alloc",
    "thp_split_pmd", "thp_split_page",  "thp_deferred_split_page", "thp_zero_page_alloc",
    "pglazyfree"};

struct Param {
  const DataFile* file;
  const Case* test;
};
void PrintTo(const Param& p, std::ostream* out) {
  *out << p.file->name << " " << p.test->test << " " << p.test->mode;
}

const std::vector<DataFile>& files() {
  static const std::vector<DataFile> all = [] {
    std::vector<DataFile> v;
    for (const auto& name : file_names()) v.push_back(read_file(name));
    return v;
  }();
  return all;
}

std::vector<Param> params() {
  std::vector<Param> all;
  for (const DataFile& file : files())
    for (const Case& test : file.cases) all.push_back({&file, &test});
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Param>& info) {
  std::string name =
      info.param.file->name + "_" + info.param.test->test + "_" + info.param.test->mode;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

const std::vector<Exception>& exceptions() {
  static const std::vector<Exception> all = read_exceptions();
  return all;
}

// The phases' names; the second of the same name is NAME#2.
std::vector<std::string> phases_of(const Case& test) {
  std::vector<std::string> names;
  std::map<std::string, int> seen;
  for (const Row& row : test.rows) {
    const int count = ++seen[row.phase];
    names.push_back(count == 1 ? row.phase : row.phase + "#" + std::to_string(count));
  }
  return names;
}

// The faults of a child's own start land in any of the phases of `fork`.
std::vector<std::string> counters_of(const DataFile& file, const Case& test) {
  std::vector<std::string> names = kProcessCounters;
  if (file.name != kNativeFile)
    names.insert(names.end(), kGuestCounters.begin(), kGuestCounters.end());
  if (test.test == "fork") std::erase(names, "pgfault");
  return names;
}

bool excepted(const Param& p, const std::string& phase, const std::string& counter) {
  return std::ranges::any_of(exceptions(), [&](const Exception& e) {
    return e.covers(p.file->name, p.test->test, p.test->mode, phase, counter);
  });
}

class RealKernel : public ::testing::TestWithParam<Param> {};

TEST_P(RealKernel, EveryPhaseEqualsTheModel) {
  const auto& [file, test] = GetParam();
  const std::vector<Row> model = Probe(*file, *test).run(operations_of(test->test));
  const std::vector<std::string> phases = phases_of(*test);
  ASSERT_EQ(model.size(), phases.size());
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Row& real = test->rows[i];
    EXPECT_EQ(model[i].phase, real.phase);
    for (const std::string& counter : counters_of(*file, *test)) {
      if (excepted(GetParam(), phases[i], counter)) {
        EXPECT_NE(model[i].at(counter), real.at(counter))
            << counter << " in phase " << phases[i] << " is equal: its exception can go";
      } else {
        EXPECT_EQ(model[i].at(counter), real.at(counter))
            << counter << " in phase " << phases[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, RealKernel, ::testing::ValuesIn(params()), name_of);

TEST(Exceptions, AreAtMostThreePercentOfTheRows) {
  std::size_t rows = 0, covered = 0;
  for (const DataFile& file : files()) {
    for (const Case& test : file.cases) {
      rows += test.rows.size();
      for (const std::string& phase : phases_of(test))
        for (const std::string& counter : counters_of(file, test)) {
          if (!excepted({&file, &test}, phase, counter)) continue;
          ++covered;
          break;
        }
    }
  }
  std::cout << covered << " of " << rows << " rows are excepted in some counter:\n";
  for (const Exception& e : exceptions())
    std::cout << "  " << e.file << " " << e.test << " " << e.mode << " " << e.phase << ": "
              << e.counters << ": " << e.reason << "\n";
  EXPECT_LE(covered * 100, rows * 3);
}

TEST(Coverage, EveryTestOfTheDataIsReplayed) {
  for (const DataFile& file : files())
    for (const Case& test : file.cases) EXPECT_TRUE(operations_of(test.test)) << test.test;
}

}  // namespace
}  // namespace faultline::real_kernels
