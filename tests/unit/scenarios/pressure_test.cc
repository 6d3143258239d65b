// SPDX-License-Identifier: Apache-2.0
//
// Workloads beside others: a process that eats memory, several processes of one workload,
// and what the programs over volatile memory make of it.
#include <gtest/gtest.h>

#include "arch_profiles/input_error.h"
#include "tests/unit/scenarios/metric_value.h"
#include "tests/unit/scenarios/run_text.h"

namespace faultline::scenario {
namespace {

constexpr std::string_view kMachine = R"(
title = "a small machine"
[machine]
profile = "x86-4k"
cpus = 4
memory = "128 MiB"
[kernel]
preset = "3.9"
transparent_hugepage.enabled = "never"
)";
constexpr std::string_view kHogged = R"(
[pressure]
cpus = 1
dirty_rate = "200 MiB"
grow_rate = "20 MiB"
)";

VariantResult run(const std::string& rest, const std::vector<Override>& overrides = {}) {
  RunChoice choice;
  choice.proc = true;
  return run_text(std::string(kMachine) + rest, overrides, choice).variants.front();
}

const std::string kCache = R"(
vrange = "v7"
[workload]
name = "vrange-cache"
entries = 400
entry = "64 KiB"
requests = 4000
pause_us = 100
)";

TEST(Pressure, TakesVolatileMemoryAndLeavesOrdinaryMemoryAlone) {
  const VariantResult calm = run(kCache);
  EXPECT_EQ(calm.failure, "");
  EXPECT_EQ(value(calm, "entries-lost"), 0);
  EXPECT_EQ(value(calm, "pressure_s"), 0);
  for (const char* policy : {"vrange", "vrange-handler"}) {
    const VariantResult v =
        run(kCache + std::string(kHogged), {{"workload.policy", policy}});
    SCOPED_TRACE(policy);
    EXPECT_EQ(v.failure, "") << "nobody is served what an entry doesn't hold";
    EXPECT_GT(value(v, "entries-lost"), 10);
    EXPECT_GE(value(v, "pgdiscard_kswapd"), 16 * value(v, "entries-lost"));
    EXPECT_GE(value(v, "vrange_purged"), value(v, "entries-lost"));
    EXPECT_EQ(value(v, "vrange_sigbus"),
              std::string_view(policy) == "vrange" ? 0 : value(v, "entries-lost"));
    EXPECT_EQ(value(v, "oom_kill"), 0);
    EXPECT_GT(value(v, "pressure_s"), 0);
    EXPECT_GT(value(v, "elapsed_s"), value(calm, "elapsed_s"));
  }
  const VariantResult none =
      run(kCache + std::string(kHogged), {{"workload.policy", "none"}});
  EXPECT_EQ(value(none, "entries-lost"), 0);
  EXPECT_EQ(value(none, "oom_kill"), 0);
}

TEST(Pressure, IsInNoTimeOfTheProgram) {
  const std::string sleeper = R"(
[workload]
name = "give-back"
heap = "1 MiB"
rounds = 0
pause_ms = 500
)";
  const VariantResult alone = run(sleeper);
  const VariantResult beside = run(sleeper + std::string(kHogged));
  EXPECT_GT(value(beside, "pressure_s"), 0.02);
  EXPECT_LT(value(beside, "user_s") + value(beside, "sys_s"),
            2 * (value(alone, "user_s") + value(alone, "sys_s")));
  EXPECT_EQ(value(beside, "minor-faults"), value(alone, "minor-faults"));
}

TEST(Pressure, KeepsFreeMemoryNearItsTarget) {
  const VariantResult v = run(R"(
[workload]
name = "give-back"
heap = "1 MiB"
rounds = 0
pause_ms = 1000
[pressure]
cpus = 2
target_free = "20 MiB"
)");
  // 20 MiB are far above the watermarks: nobody reclaims.
  EXPECT_EQ(value(v, "pageoutrun"), 0);
  EXPECT_GT(value(v, "pressure_s"), 1.5) << "two CPUs without a rate";
  std::string vmstat;
  for (const auto& [path, text] : v.proc)
    if (path == "proc/vmstat") vmstat = text;
  const double pages = std::stod(vmstat.substr(vmstat.find(' ') + 1));
  EXPECT_GT(pages * 4096, 18 << 20) << vmstat.substr(0, 40);
  EXPECT_LT(pages * 4096, 22 << 20);
}

TEST(Processes, RunSideBySideAndTheirCountsAddUp) {
  const std::string program = R"(
[workload]
name = "vrange-micro"
policy = "dontneed"
threads = 1
blocks = 2
block = "1 MiB"
rounds = 3
)";
  const VariantResult one = run(program);
  const VariantResult many = run(program, {{"processes", "3"}});
  EXPECT_EQ(value(many, "blocks-filled"), 3 * value(one, "blocks-filled"));
  EXPECT_EQ(value(many, "minor-faults"), 3 * value(one, "minor-faults"));
  EXPECT_LT(value(many, "elapsed_s"), 1.5 * value(one, "elapsed_s"));
  EXPECT_GT(value(many, "user_s"), 2.5 * value(one, "user_s"));
}

TEST(VrangeMicro, FaultsOnceWithVolatileBlocksAndEachTimeWithout) {
  const std::string program = R"(
vrange = "v7"
[workload]
name = "vrange-micro"
threads = 2
blocks = 2
block = "1 MiB"
rounds = 5
)";
  const double pages = 2 * 2 * 256;
  const auto faults = [&](const char* policy) {
    const VariantResult v = run(program, {{"workload.policy", policy}});
    EXPECT_EQ(v.failure, "");
    return value(v, "minor-faults");
  };
  const double kept = faults("none");
  EXPECT_GE(kept, pages);
  EXPECT_LT(kept, pages + 50);
  EXPECT_EQ(faults("vrange"), kept);
  EXPECT_EQ(faults("dontneed"), kept + 4 * pages);
}

TEST(GiveBack, GivesOnlyWholePages) {
  const std::string program = R"(
[workload]
name = "give-back"
heap = "1 MiB"
block = "2 KiB"
run = 3
every = 8
rounds = 1
)";
  const VariantResult v = run(program);
  // Runs of 6 KiB begin every 16 KiB, on a page: one page each.
  EXPECT_EQ(value(v, "calls"), 64);
  EXPECT_EQ(value(v, "pages-given"), 64);
  EXPECT_EQ(value(v, "free-kib"), 384);
  EXPECT_EQ(value(v, "given-kib"), 256);
  const VariantResult small = run(program, {{"workload.run", "1"}});
  EXPECT_EQ(value(small, "given-kib"), 0);
  EXPECT_EQ(value(small, "calls"), 0);
}

TEST(GiveBack, FlushesConcernTheCpusThatRunTheProgram) {
  const std::string program = R"(
[workload]
name = "give-back"
heap = "1 MiB"
block = "64 KiB"
rounds = 2
)";
  const VariantResult alone = run(program);
  EXPECT_EQ(value(alone, "nr_tlb_remote_flush"), 0);
  EXPECT_GE(value(alone, "nr_tlb_local_flush_one"), 48);
  const VariantResult busy = run(program, {{"workload.spinners", "3"}});
  EXPECT_GE(value(busy, "nr_tlb_remote_flush"), 40);
  EXPECT_GE(value(busy, "nr_tlb_remote_flush_received"), 100);
  EXPECT_GT(value(busy, "elapsed_s"), value(alone, "elapsed_s"));
}

}  // namespace
}  // namespace faultline::scenario
