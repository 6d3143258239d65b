// SPDX-License-Identifier: Apache-2.0
//
// Who keeps the time of ebizzy sleeps, and wakes late on CPUs that others keep busy.
#include <gtest/gtest.h>

#include "tests/unit/scenarios/metric_value.h"
#include "tests/unit/scenarios/run_text.h"

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
  return run_text(std::string(kBusy), {{"workload.seconds", seconds}}).variants.front();
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
