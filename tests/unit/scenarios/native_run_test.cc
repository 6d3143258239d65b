// SPDX-License-Identifier: Apache-2.0
//
// Workloads on the machine at hand: the counts that don't depend on it.
#include "scenarios/run/native_run.h"
#include "tests/unit/scenarios/metric_value.h"

#include <gtest/gtest.h>

namespace faultline::scenario {
namespace {

constexpr const char* kScenario = R"(
title = "native"
[machine]
profile = "x86-4k"
[kernel]
preset = "6.1"
[allocator]
release = "2.36"
[workload]
name = "hugepages"
elements = 20000
buckets = 20011
startup_pages = 0
[[variant]]
name = "all"
[[variant]]
name = "none"
workload.elements = 1
workload.buckets = 1
[[variant]]
name = "impossible"
workload.buckets = 1_000_000_000_000
)";

TEST(NativeRun, MeasuresTheWorkloadAlone) {
  const Scenario s = load_scenario(kScenario, "native.toml");
  const VariantResult all = run_natively(s.variants.at(0));
  const VariantResult none = run_natively(s.variants.at(1));
  EXPECT_EQ(all.failure, "");
  EXPECT_EQ(value(all, "inserted"), 20000);
  // 640,000 bytes of nodes and 160,000 of array: on small pages 195 faults more than
  // nothing, on huge ones at least one.
  EXPECT_GT(value(all, "minor-faults"), value(none, "minor-faults"));
  EXPECT_GT(value(all, "elapsed_s"), 0);
}

TEST(NativeRun, SaysWhatTheWorkloadFoundWrong) {
  const Scenario s = load_scenario(kScenario, "native.toml");
  EXPECT_EQ(run_natively(s.variants.at(2)).failure, "malloc answered NULL");
}

TEST(NativeRun, NamesTheMachine) {
  EXPECT_TRUE(this_machine().starts_with("Linux "));
}

}  // namespace
}  // namespace faultline::scenario
