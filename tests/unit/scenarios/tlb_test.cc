// SPDX-License-Identifier: Apache-2.0
//
// TLBs and tunables in scenarios: what is counted, what is said, and what is as it was.
#include <gtest/gtest.h>

#include "scenarios/report/json.h"
#include "scenarios/report/text.h"
#include "scenarios/run/execute.h"

namespace faultline::scenario {
namespace {

constexpr const char* kChase = R"(
title = "a small chase"
[machine]
profile = "x86-4k-5900x"
tlb_model = true
[kernel]
preset = "5.14"
[kernel.transparent_hugepage]
enabled = "madvise"
[allocator]
release = "2.36"
[workload]
name = "spec-like"
heap = "48 MiB"
laps = 1
[[variant]]
name = "small"
[[variant.published]]
metric = "dTLB-load-misses"
value = 1000
role = "prediction"
[[variant]]
name = "huge"
allocator.tunables = "glibc.malloc.hugetlb=1"
[variant.expect]
"tlb_walks / small.tlb_walks" = "< 0.05"
user_s = "< 1"
)";

Result run(const std::string& text, const std::vector<Override>& overrides = {}) {
  const Scenario s = load_scenario(text, "chase.toml", overrides);
  ProgressList progress(s.variants.size());
  return run_scenario(s, {{}, 1}, progress);
}
std::string value(const VariantResult& v, std::string_view metric) {
  const Metric* m = v.metric(metric);
  return m == nullptr ? "none" : m->value.text();
}

TEST(TlbScenario, HugePagesSaveTheWalksAndTheOutputSaysWhatIsCounted) {
  const Result r = run(kChase);
  EXPECT_TRUE(r.expectations_met());
  const VariantResult& small = r.variants[0];
  EXPECT_EQ(value(small, "dTLB-loads"), value(small, "tlb_l1_misses")) << "as AMD counts";
  EXPECT_EQ(value(small, "dTLB-load-misses"), value(small, "tlb_walks"));
  EXPECT_NE(value(small, "tlb_walk_s"), "none");
  ASSERT_EQ(small.published.size(), 1U);
  EXPECT_NE(report::text(r).find("ls_l1_d_tlb_miss.all_l2_miss"), std::string::npos);
  EXPECT_NE(report::json(r).find("\"modelled\": true"), std::string::npos);
}

TEST(TlbScenario, WithoutTlbsTheFigureIsLessByTheWalksAndThereIsNoCount) {
  const Result on = run(kChase);
  const Result off = run(kChase, {{"machine.tlb_model", "false"}});
  const VariantResult &a = on.variants[0], &b = off.variants[0];
  EXPECT_EQ(value(b, "tlb_walks"), "none");
  EXPECT_TRUE(b.published.empty()) << "nothing to compare";
  EXPECT_EQ(value(a, "minor-faults"), value(b, "minor-faults"));
  EXPECT_EQ(value(a, "sys_s"), value(b, "sys_s"));
  EXPECT_NEAR(a.metric("user_s")->value.to_double() - b.metric("user_s")->value.to_double(),
              a.metric("tlb_walk_s")->value.to_double(), 1e-9);
  EXPECT_NE(report::text(off).find("TLBs: not modelled"), std::string::npos);
}

TEST(TlbScenario, OnACpuWithoutTheEventThereIsNoSuchMetric) {
  const std::string a72 = [] {
    std::string text = kChase;
    text.replace(text.find("x86-4k-5900x"), 12, "arm64-4k-a72");
    return text;
  }();
  const Result r = run(a72);
  EXPECT_EQ(value(r.variants[0], "dTLB-loads"), "none");
  EXPECT_NE(value(r.variants[0], "dTLB-load-misses"), "none");
}

TEST(AllocatorSettings, WhatGlibcPassesOverIsNotedAndTheRunGoesOn) {
  const Result r = run(std::string(kChase) + R"(
[[variant]]
name = "odd"
allocator.tunables = "glibc.malloc.arena_mx=2:glibc.malloc.top_pad=4k"
allocator.environment = { MALLOC_ARENA_MAX = "2", MALLOC_NOSUCH = "1" }
)");
  const VariantResult& odd = r.variants.back();
  ASSERT_EQ(odd.notes.size(), 3U);
  EXPECT_EQ(odd.notes[0], "malloc reads no variable \"MALLOC_NOSUCH\"");
  EXPECT_NE(odd.notes[1].find("arena_mx"), std::string::npos);
  EXPECT_NE(odd.notes[2].find("reads 4"), std::string::npos);
  EXPECT_NE(report::text(r).find("note, odd: "), std::string::npos);
  EXPECT_NE(report::json(r).find("\"notes\""), std::string::npos);
  const Scenario s = load_scenario(
      std::string(kChase) +
          "[[variant]]\nname = \"v\"\nallocator.environment = { MALLOC_ARENA_MAX = \"2\", "
          "GLIBC_TUNABLES = \"glibc.malloc.mxfast=0\" }\n",
      "chase.toml");
  EXPECT_EQ(s.variants.back().allocator.settings.arena_max, 2U);
  EXPECT_EQ(s.variants.back().allocator.settings.mxfast, 0U);
}

}  // namespace
}  // namespace faultline::scenario
