// SPDX-License-Identifier: Apache-2.0
//
// Every row that was measured on a real kernel equals the model: one test for each run of
// mmprobe, named File/Test/Mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/real_kernels/exceptions.h"
#include "tests/real_kernels/probe.h"
#include "tests/real_kernels/rows.h"

namespace faultline::real_kernels {
namespace {

// The files that the model is held to so far.
const std::vector<std::string> kHeld = {"arm64-4k", "arm64-64k", "power-radix-64k",
                                        "x86-4k-6.1"};

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
    for (const auto& name : kHeld) v.push_back(read_file(name));
    return v;
  }();
  return all;
}

std::vector<Param> params() {
  std::vector<Param> all;
  for (const DataFile& file : files())
    for (const Case& test : file.cases)
      if (operations_of(test.test)) all.push_back({&file, &test});
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Param>& info) {
  std::string name =
      info.param.file->name + "_" + info.param.test->test + "_" + info.param.test->mode;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

class RealKernel : public ::testing::TestWithParam<Param> {
 protected:
  std::vector<std::string> counters() const {
    std::vector<std::string> names = kProcessCounters;
    if (GetParam().file->name != "x86-4k-6.18")
      names.insert(names.end(), kGuestCounters.begin(), kGuestCounters.end());
    return names;
  }

  bool excepted(const std::string& phase, const std::string& counter) const {
    static const std::vector<Exception> exceptions = read_exceptions();
    const auto& [file, test] = GetParam();
    return std::ranges::any_of(exceptions, [&](const Exception& e) {
      return e.covers(file->name, test->test, test->mode, phase, counter);
    });
  }
};

TEST_P(RealKernel, EveryPhaseEqualsTheModel) {
  const auto& [file, test] = GetParam();
  const std::vector<Row> model = Probe(*file, *test).run(operations_of(test->test));
  ASSERT_EQ(model.size(), test->rows.size());
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Row& real = test->rows[i];
    EXPECT_EQ(model[i].phase, real.phase);
    const int count = ++seen[real.phase];
    const std::string phase =
        count == 1 ? real.phase : real.phase + "#" + std::to_string(count);
    for (const std::string& counter : counters()) {
      if (excepted(phase, counter)) continue;
      EXPECT_EQ(model[i].at(counter), real.at(counter)) << counter << " in phase " << phase;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, RealKernel, ::testing::ValuesIn(params()), name_of);

}  // namespace
}  // namespace faultline::real_kernels
