// SPDX-License-Identifier: Apache-2.0
//
// The same random calls from 2, 8 and 64 simulated threads, on kernels and machines of all
// kinds.
#include "tests/property/stress.h"

#include <gtest/gtest.h>

#include <ostream>

namespace faultline::property {

void PrintTo(const StressPlan& plan, std::ostream* out) {
  *out << plan.profile << " " << plan.preset << " " << plan.threads << " threads";
}

namespace {

class StressTest : public testing::TestWithParam<StressPlan> {};

TEST_P(StressTest, InvariantsAndLockOrderHold) {
  const StressResult result = run_stress(GetParam());

  EXPECT_GE(result.calls, GetParam().calls);
  EXPECT_LT(result.failed, result.calls / 2) << "most calls should do something";
  EXPECT_GT(result.faults, 100U);
  EXPECT_GT(result.lock_pairs, 2U);
  if (GetParam().threads > 2) {
    EXPECT_GT(result.contended, 0U);
  }
}

std::vector<StressPlan> plans() {
  const std::pair<const char*, const char*> machines[] = {
      {"x86-4k", "4.15"},         {"x86-4k", "5.14"},          {"x86-4k", "6.1"},
      {"x86-4k", "6.8"},          {"x86-4k", "6.12"},          {"x86-4k", "6.18"},
      {"arm64-4k", "6.5"},        {"arm64-64k", "6.1"},        {"arm64-64k", "6.18"},
      {"power-hash-64k", "4.15"}, {"power-radix-64k", "6.12"}, {"s390x", "5.3"}};
  std::vector<StressPlan> all;
  std::uint64_t seed = 0;
  for (const auto& [profile, preset] : machines)
    for (const unsigned threads : {2U, 8U, 64U})
      all.push_back({.profile = profile,
                     .preset = preset,
                     .threads = threads,
                     .calls = 1200,
                     .seed = ++seed});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, StressTest, testing::ValuesIn(plans()));

TEST(Stress, TheSameSeedGivesTheSameRun) {
  const StressPlan plan{.profile = "x86-4k", .preset = "6.18", .threads = 8, .calls = 400};
  EXPECT_EQ(run_stress(plan).fingerprint, run_stress(plan).fingerprint);
  StressPlan other = plan;
  other.seed = 3;
  EXPECT_NE(run_stress(plan).fingerprint, run_stress(other).fingerprint);
}

}  // namespace
}  // namespace faultline::property
