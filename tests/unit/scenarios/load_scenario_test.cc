// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "scenarios/library/library.h"
#include "scenarios/run/scenario.h"

namespace faultline::scenario {
namespace {

constexpr std::string_view kBase = R"(
title = "two locks"
source = "a thread"
seed = 7

[machine]
profile = "arm64-64k-d05"

[kernel]
preset = "4.15"
transparent_hugepage.enabled = "always"

[workload]
name = "mallocstress"
loops = 10

[[variant]]
name = "reported"

[[variant]]
name = "rwsem-5.3"
title = "new rules"
kernel.locks.rwsem = "5.3"
)";

Scenario load(const std::string& more = {}, const std::vector<Override>& overrides = {}) {
  return load_scenario(std::string(kBase) + more, "folder/locks.toml", overrides);
}

std::string message(const std::string& more) {
  try {
    (void)load(more);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LoadScenario, VariantsShareTheTablesAndTurnTheirOwn) {
  const Scenario s = load();
  EXPECT_EQ(s.name, "locks");
  EXPECT_EQ(s.title, "two locks");
  EXPECT_EQ(s.seed, 7u);
  ASSERT_EQ(s.variants.size(), 2u);
  const RunSpec& a = s.variants[0];
  const RunSpec& b = s.variants[1];
  EXPECT_EQ(a.name, "reported");
  EXPECT_EQ(a.machine, "arm64-64k-d05");
  EXPECT_EQ(a.profile.cpus, 64u);
  EXPECT_EQ(a.kernel.preset, "4.15");
  EXPECT_EQ(a.kernel.thp_enabled, kernel::ThpEnabled::kAlways);
  EXPECT_EQ(a.kernel.rwsem, RwSemRules::k4_15);
  EXPECT_EQ(a.workload.number("loops"), 10);
  EXPECT_EQ(a.workload.number("threads"), 60);
  EXPECT_EQ(b.title, "new rules");
  EXPECT_EQ(b.kernel.rwsem, RwSemRules::k5_3);
  EXPECT_EQ(b.kernel.thp_enabled, kernel::ThpEnabled::kAlways);
  EXPECT_EQ(b.seed, 7u);
}

TEST(LoadScenario, WithoutVariantsThereIsOne) {
  const std::string text(kBase.substr(0, kBase.find("[[variant]]")));
  const Scenario s = load_scenario(text, "locks.toml");
  ASSERT_EQ(s.variants.size(), 1u);
  EXPECT_EQ(s.variants[0].name, "default");
}

TEST(LoadScenario, SwitchesMayBeWrittenAsTablesDottedOrQuoted) {
  const Scenario s = load(R"(
[[variant]]
name = "quoted"
set = { "kernel.locks.rwsem" = "5.3", "machine.costs.clear_rate" = "10 GB/s" }
[[variant]]
name = "one-key"
[variant.kernel]
"locks.rwsem" = "5.3"
)");
  EXPECT_EQ(s.variants[2].kernel.rwsem, RwSemRules::k5_3);
  EXPECT_EQ(s.variants[2].profile.costs.clear_rate, 10'000'000'000u);
  EXPECT_EQ(s.variants[0].profile.costs.clear_rate, 6'600'000'000u);
  EXPECT_EQ(s.variants[3].kernel.rwsem, RwSemRules::k5_3);
}

TEST(LoadScenario, ANewPresetKeepsTheSwitchesThatWereSet) {
  const Scenario s = load("\n[[variant]]\nname = \"new\"\nkernel.preset = \"6.5\"\n");
  EXPECT_EQ(s.variants[2].kernel.preset, "6.5");
  EXPECT_EQ(s.variants[2].kernel.thp_enabled, kernel::ThpEnabled::kAlways);
  EXPECT_NE(s.variants[2].kernel.per_vma_lock, kernel::VmaLockRule::kNo);
}

TEST(LoadScenario, AnotherWorkloadStartsFromItsOwnDefaults) {
  const Scenario s = load(
      "\n[[variant]]\nname = \"t\"\nworkload = { name = \"touch\", map = \"2 MiB\" }\n");
  EXPECT_EQ(s.variants[2].workload.decl().name, "touch");
  EXPECT_EQ(s.variants[2].workload.bytes("map"), 2u << 20);
}

TEST(LoadScenario, OverridesOfTheCommandLineWinInEveryVariant) {
  const Scenario s = load(
      {}, {parse_override("kernel.locks.rwsem=4.15"), parse_override("workload.threads=4"),
           parse_override("machine.profile=x86-4k"), parse_override("seed=9")});
  for (const RunSpec& v : s.variants) {
    EXPECT_EQ(v.kernel.rwsem, RwSemRules::k4_15);
    EXPECT_EQ(v.workload.number("threads"), 4);
    EXPECT_EQ(v.machine, "x86-4k");
    EXPECT_EQ(v.seed, 9u);
  }
  EXPECT_EQ(s.seed, 9u);
}

TEST(LoadScenario, PublishedNumbersGoToTheirVariant) {
  const Scenario s = load(R"(
[[variant.published]]
metric = "sys_s"
value = 1467.041
role = "calibration"

[[published]]
variant = "reported"
metric = "elapsed_s"
value = 478
role = "prediction"
source = "the mail"
)");
  ASSERT_EQ(s.variants[0].published.size(), 1u);
  EXPECT_EQ(s.variants[0].published[0].value, Decimal(478, 0));
  EXPECT_EQ(s.variants[0].published[0].source, "the mail");
  ASSERT_EQ(s.variants[1].published.size(), 1u);
  EXPECT_EQ(s.variants[1].published[0].value, Decimal(1467041, 3));
  EXPECT_EQ(s.variants[1].published[0].role, Role::kCalibration);
  EXPECT_EQ(s.variants[1].published[0].source, "a thread");
}

TEST(LoadScenario, SharedExpectationsHoldForAllVariantsOrForThoseNamed) {
  const Scenario s = load(R"(
[expect]
minor-faults = ">= 1"
"rwsem-5.3.elapsed_s / reported.elapsed_s" = "< 0.6"
)");
  ASSERT_EQ(s.variants[0].expect.size(), 1u);
  EXPECT_EQ(s.variants[0].expect[0].text, "minor-faults >= 1");
  ASSERT_EQ(s.variants[1].expect.size(), 2u);
}

TEST(LoadScenario, ExpectationsAreHeldAgainstTheMetricsOfTheirVariant) {
  EXPECT_EQ(message("\n[expect]\nmallocs = \"> 0\"\n"), "accepted");
  EXPECT_TRUE(message("\n[expect]\ntouches = \"> 0\"\n")
                  .starts_with("folder/locks.toml:26:1: there is no metric \"touches\""));
  EXPECT_TRUE(
      message("\n[expect]\nelapsed_s = \"< rwsem-5.4.elapsed_s\"\n")
          .starts_with("folder/locks.toml:26:13: there is no variant \"rwsem-5.4\"\n"
                       "  did you mean \"rwsem-5.3\"?"));
}

TEST(LoadScenario, AProfileMayBeAFileBesideTheScenario) {
  const std::string file = "tests/unit/scenarios/two_cpus.profile.toml";
  std::string text(kBase);
  const std::string name = "arm64-64k-d05";
  text.replace(text.find(name), name.size(), "two_cpus.profile.toml");
  const Scenario s = load_scenario(text, "tests/unit/scenarios/inline.toml");
  EXPECT_EQ(s.variants[0].profile.cpus, 2u);
  EXPECT_EQ(s.variants[0].profile.geometry.page_size(), 4096u);
}

TEST(LoadScenario, EveryScenarioOfTheLibraryLoads) {
  for (const std::string& name : library_scenario_names()) {
    const EmbeddedFile* file = find_library_scenario(name);
    ASSERT_NE(file, nullptr);
    const Scenario s = load_scenario(file->text, name + ".toml");
    EXPECT_FALSE(s.title.empty());
    EXPECT_FALSE(s.source.empty());
    const bool expects = std::any_of(s.variants.begin(), s.variants.end(),
                                     [](const RunSpec& v) { return !v.expect.empty(); });
    EXPECT_TRUE(expects) << name;
  }
}

}  // namespace
}  // namespace faultline::scenario
