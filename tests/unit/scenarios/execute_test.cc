// SPDX-License-Identifier: Apache-2.0
//
// Whole runs of small scenarios: same bytes however they are run, and totals that add up.
#include "scenarios/run/execute.h"

#include <gtest/gtest.h>

#include "arch_profiles/input_error.h"
#include "scenarios/report/json.h"

namespace faultline::scenario {
namespace {

constexpr const char* kStress = R"(
title = "a small mallocstress"
[machine]
profile = "arm64-64k-d05"
[kernel]
preset = "4.15"
[workload]
name = "mallocstress"
threads = 8
loops = 2
[[variant]]
name = "always"
kernel.transparent_hugepage.enabled = "always"
[[variant]]
name = "never"
kernel.transparent_hugepage.enabled = "never"
[variant.expect]
thp_fault_alloc = "== 0"
"sys_s / always.sys_s" = "< 0.5"
[[variant]]
name = "four-cpus"
machine.cpus = 4
)";

Scenario stress(const std::vector<Override>& overrides = {}) {
  return load_scenario(kStress, "stress.toml", overrides);
}

Result run(const Scenario& scenario, const RunChoice& choice = {}) {
  ProgressList progress(chosen_variants(scenario, choice).size());
  return run_scenario(scenario, choice, progress);
}

Decimal value(const VariantResult& v, std::string_view metric) {
  return v.metric(metric)->value;
}

TEST(Execute, SameBytesAgainAndOnSeveralHostThreads) {
  const std::string once = report::json(run(stress()));
  EXPECT_EQ(report::json(run(stress())), once);
  EXPECT_EQ(report::json(run(stress(), {{}, 3})), once);
}

TEST(Execute, AVariantAloneGivesWhatItGivesAmongOthers) {
  const Result all = run(stress());
  const Result alone = run(stress(), {{"four-cpus"}, 1});
  ASSERT_EQ(alone.variants.size(), 1U);
  for (const Metric& m : alone.variants[0].metrics)
    EXPECT_EQ(m.value.text(), value(all.variants[2], m.name).text()) << m.name;
}

TEST(Execute, ExpectationsMayNameOtherVariants) {
  const Result all = run(stress());
  EXPECT_TRUE(all.variants[0].expectations.empty());
  ASSERT_EQ(all.variants[1].expectations.size(), 2U);
  EXPECT_TRUE(all.expectations_met()) << report::json(all);
  // Without the variant it names the second one says nothing.
  EXPECT_EQ(run(stress(), {{"never"}, 1}).variants[0].expectations.size(), 1U);
}

TEST(Execute, RefusesAVariantThatIsNotThere) {
  try {
    (void)chosen_variants(stress(), {{"nevr"}, 1});
    FAIL() << "accepted";
  } catch (const InputError& e) {
    EXPECT_EQ(e.complaint().hint, "did you mean \"never\"?");
    EXPECT_EQ(e.complaint().accepted,
              (std::vector<std::string>{"always", "never", "four-cpus"}));
  }
}

// All the time of all tasks is somewhere: shares add up to one, user and system time to the
// time on a CPU, and no more CPU time is used than there is.
TEST(Execute, TimeAddsUp) {
  const Scenario s = stress();
  for (const RunSpec& spec : s.variants) {
    workloads::Progress progress;
    const VariantRun r = run_variant(spec, progress);
    const Evidence& e = r.evidence;
    EXPECT_EQ(e.user + e.sys, e.busy());
    Duration in_stacks, in_shares;
    for (const Evidence::Stack& stack : e.stacks) in_stacks += stack.busy;
    for (const StackShare& share : r.result.top) in_shares += share.self;
    EXPECT_EQ(in_stacks, e.busy());
    EXPECT_EQ(in_shares, e.busy());
    EXPECT_LE(e.busy(), e.elapsed * static_cast<std::int64_t>(e.cpus));
    EXPECT_EQ(e.cpus, spec.profile.cpus);
    EXPECT_EQ(e.tasks, 9U);
    EXPECT_EQ(progress.done, progress.total);
    EXPECT_EQ(progress.done, 16U);
  }
}

Override setting(const std::string& text) {
  return parse_override(text);
}

// 6.1 collapses the pieces of huge pages that frees have split; its thread's time is its
// own.
TEST(Execute, KhugepagedRunsAsTheScenarioSays) {
  const std::vector<Override> often{setting("kernel.preset=6.1"),
                                    setting("kernel.khugepaged.scan_sleep_millisecs=1"),
                                    setting("kernel.khugepaged.pages_to_scan=10000000")};
  const Result with = run(stress(often), {{"always"}, 1});
  EXPECT_GT(value(with.variants[0], "thp_collapse_alloc").units(), 0);
  EXPECT_GT(value(with.variants[0], "kernel_threads_s").units(), 0);
  std::vector<Override> off = often;
  off.push_back(setting("kernel.khugepaged.run=false"));
  const Result without = run(stress(off), {{"always"}, 1});
  EXPECT_EQ(value(without.variants[0], "thp_collapse_alloc").units(), 0);
  EXPECT_EQ(value(without.variants[0], "kernel_threads_s").units(), 0);
}

TEST(Execute, TextsOfProcAreKeptIfAskedFor) {
  const Scenario s = stress();
  workloads::Progress progress;
  EXPECT_TRUE(run_variant(s.variants[0], progress).result.proc.empty());
  const VariantRun r = run_variant(s.variants[0], progress, KeepProc::kYes);
  const auto text = [&](const std::string& path) {
    for (const auto& [name, content] : r.result.proc)
      if (name == path) return content;
    return std::string();
  };
  const std::string faults = value(r.result, "thp_fault_alloc").text();
  EXPECT_NE(text("proc/vmstat").find("thp_fault_alloc " + faults + "\n"),
            std::string::npos);
  EXPECT_NE(text("proc/1/maps").find("[stack]"), std::string::npos);
  EXPECT_NE(text("proc/1/status").find("VmRSS:"), std::string::npos);
  EXPECT_NE(text("proc/lock_stat").find("mmap_lock"), std::string::npos);
  EXPECT_EQ(text("sys/kernel/mm/transparent_hugepage/enabled"), "[always] madvise never\n");
}

TEST(Execute, MoreTasksThanCpusWait) {
  const Result r = run(stress(), {{"four-cpus"}, 1});
  EXPECT_GT(value(r.variants[0], "runnable_s").units(), 0);
  EXPECT_LE(compare(value(r.variants[0], "cpus_busy"), Decimal::count(4)), 0);
}

TEST(Execute, ReportedStacksCarryTheKernelsNames) {
  const Result r = run(stress(), {{"always"}, 1});
  const std::string chain =
      "el0_da;do_mem_abort;do_translation_fault;do_page_fault;handle_mm_fault;__handle_mm_"
      "fault;"
      "do_huge_pmd_anonymous_page;__do_huge_pmd_anonymous_page;clear_huge_page;clear_page";
  const std::string& top = r.variants[0].top.at(0).stack;
  EXPECT_TRUE(top.ends_with(chain)) << top;
  EXPECT_TRUE(
      top.starts_with("start_thread;alloc_mem;allocate_free;malloc;_int_malloc;sysmalloc;"))
      << top;
}

TEST(Execute, TheWorkloadsOwnCountsAreMetrics) {
  const Result r = run(stress(), {{"never"}, 1});
  // Two threads a scheme, two rounds; 256 GiB end the rounds of all schemes but the first.
  EXPECT_EQ(value(r.variants[0], "frees").text(),
            std::to_string(2 * 2 * (50 + 35 + 23 + 16)));
  EXPECT_EQ(value(r.variants[0], "refused-mallocs").text(), std::to_string(2 * 2 * 3));
  EXPECT_EQ(r.variants[0].failure, "");
}

}  // namespace
}  // namespace faultline::scenario
