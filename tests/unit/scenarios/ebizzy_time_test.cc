// SPDX-License-Identifier: Apache-2.0
//
// Who keeps the time of ebizzy sleeps, and wakes late on CPUs that others keep busy.
#include <gtest/gtest.h>

#include "scenarios/run/execute.h"
#include "tests/unit/scenarios/metric_value.h"

namespace faultline::scenario {
namespace {

// Eight threads on one CPU: a wake-up waits for the slices of all of them.
constexpr std::string_view kBusy = R"(
title = "more threads than CPUs"
[machine]
profile = "x86-4k"
cpus = 1
memory = "512 MiB"
[kernel]
preset = "4.15"
transparent_hugepage.enabled = "never"
[allocator]
name = "ptmalloc"
[workload]
name = "ebizzy"
threads = 8
)";

VariantResult run(const char* seconds) {
  const Scenario scenario =
      load_scenario(std::string(kBusy), "t.toml", {{"workload.seconds", seconds}});
  ProgressList progress(1);
  return run_scenario(scenario, {}, progress).variants.front();
}

TEST(EbizzyTime, WakingLateIsNotAddedUp) {
  const VariantResult five = run("5");
  EXPECT_LT(value(five, "elapsed_s"), 5.1);
}

TEST(EbizzyTime, TheRateIsThatOfTheTimeTaken) {
  const VariantResult one = run("1"), five = run("5");
  EXPECT_NEAR(value(one, "records-per-s") / value(five, "records-per-s"), 1, 0.01);
}

}  // namespace
}  // namespace faultline::scenario
