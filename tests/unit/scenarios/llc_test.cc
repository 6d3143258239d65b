// SPDX-License-Identifier: Apache-2.0
//
// Threads that copy: while the last-level cache holds their blocks together they scale with
// the CPUs, and when it doesn't they stand at the memory's bandwidth.
#include <gtest/gtest.h>

#include "arch_profiles/input_error.h"
#include "scenarios/report/json.h"
#include "tests/unit/scenarios/metric_value.h"
#include "tests/unit/scenarios/run_text.h"

namespace faultline::scenario {
namespace {

// 512 KiB of source for all threads, and as much of destination for each.
constexpr std::string_view kMachine = R"(
title = "a machine with a cache"
[machine]
profile = "x86-4k"
cpus = 8
memory = "512 MiB"
[machine.llc]
size = "4 MiB"
slices = 4
[machine.costs]
cached_copy_rate = "10 GB/s"
memory_rate = "8 GB/s"
node_bandwidth = "16 GB/s"
[kernel]
preset = "4.15"
transparent_hugepage.enabled = "never"
[allocator]
name = "ptmalloc"
[workload]
name = "ebizzy"
seconds = 1
)";
constexpr double kBandwidth = 16e9;

Result run(const std::vector<Override>& overrides) {
  return run_text(std::string(kMachine), overrides);
}
double value(const Result& r, std::string_view metric) {
  return value(r.variants.front(), metric);
}
Result with_threads(const char* threads, const char* size = "4 MiB") {
  return run({{"workload.threads", threads}, {"machine.llc.size", size}});
}
double records(const Result& r) {
  return value(r, "records-per-s");
}
// Of the pages that were looked up.
double missed(const Result& r) {
  return value(r, "llc_misses") / (value(r, "llc_misses") + value(r, "llc_hits"));
}

TEST(LastLevelCacheOfAMachine, ThreadsScaleWhileItHoldsTheirBlocks) {
  const Result one = with_threads("1"), four = with_threads("4");
  EXPECT_NEAR(records(four) / records(one), 4, 0.2);
  EXPECT_LT(missed(four), 0.02);
}

TEST(LastLevelCacheOfAMachine, BeyondItTheMemoryDecides) {
  const Result one = with_threads("1", "2 MiB"), eight = with_threads("8", "2 MiB");
  EXPECT_LT(missed(one), 0.01);
  EXPECT_GT(missed(eight), 0.5);
  EXPECT_LT(records(eight) / records(one), 3);
  const double traffic = value(eight, "dram_bytes") / value(eight, "elapsed_s");
  EXPECT_LE(traffic, kBandwidth);
  EXPECT_GT(traffic, 0.85 * kBandwidth);
  EXPECT_GT(value(eight, "llc_writebacks"), 0.2 * value(eight, "llc_misses"));
  const Result off = with_threads("8", "0 B");
  EXPECT_GT(records(off) / records(one), 7);
  EXPECT_EQ(off.variants.front().metric("llc_misses"), nullptr);
}

TEST(LastLevelCacheOfAMachine, EachRunIsTheSame) {
  EXPECT_EQ(report::json(with_threads("8")), report::json(with_threads("8")));
}

// The pages that a thread gives back are those it gets next.
TEST(LastLevelCacheOfAMachine, FreedPagesStayWarm) {
  const Result r = run({{"workload.threads", "2"},
                        {"allocator.name", "jemalloc"},
                        {"allocator.conf", "narenas:8"}});
  EXPECT_GT(value(r, "minor-faults"), 100 * value(r, "records"));
  EXPECT_LT(missed(r), 0.05);
}

}  // namespace
}  // namespace faultline::scenario
