// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/profile_loader.h"

#include <gtest/gtest.h>

#include "arch_profiles/kernel_defaults.h"

namespace faultline::arch {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB,
                        kTiB = 1024 * kGiB;

std::string message(std::string_view machine, std::string_view profile = "arm64-64k") {
  try {
    (void)load_profile(profile, parse_toml(machine, "m.toml"), {"m.toml", 1, 1});
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Profiles, EveryBuiltInProfileIsPossible) {
  const auto names = list_profiles();
  EXPECT_GE(names.size(), 16u);
  for (const std::string& name : names) {
    const Profile p = load_profile(name);
    EXPECT_EQ(p.name, name);
    EXPECT_FALSE(p.source.empty());
    for (const auto& [cost, source] : p.cost_sources)
      EXPECT_FALSE(source.source.empty()) << name << " " << cost;
    EXPECT_NE(describe(p).find(p.title), std::string::npos);
  }
}

TEST(Profiles, PartsOfProfilesAreNotMachines) {
  for (const std::string& name : list_profiles()) EXPECT_NE(name, "cortex-a72");
  EXPECT_TRUE(message("", "cortex-a72")
                  .starts_with("m.toml:1:1: there is no profile \"cortex-a72\""));
}

struct GeometryRow {
  const char* profile;
  std::uint64_t page, pmd, pages_per_pmd, pte_lock, pmd_lock, max_block, contpte;
};

// The table of what Linux has on each architecture (headers and Kconfig of 4.15 to 6.12).
TEST(Profiles, GeometryIsThatOfTheArchitecture) {
  const GeometryRow rows[] = {
      {"x86-4k", 4 * kKiB, 2 * kMiB, 512, 2 * kMiB, kGiB, 4 * kMiB, 0},
      {"arm64-4k", 4 * kKiB, 2 * kMiB, 512, 2 * kMiB, kGiB, 4 * kMiB, 64 * kKiB},
      {"arm64-16k", 16 * kKiB, 32 * kMiB, 2048, 32 * kMiB, 64 * kGiB, 32 * kMiB, 2 * kMiB},
      {"arm64-64k", 64 * kKiB, 512 * kMiB, 8192, 512 * kMiB, 4 * kTiB, 512 * kMiB,
       2 * kMiB},
      {"power-hash-64k", 64 * kKiB, 16 * kMiB, 256, 256 * kMiB, 64 * kGiB, 16 * kMiB, 0},
      {"power-radix-64k", 64 * kKiB, 2 * kMiB, 32, 512 * kMiB, 16 * kGiB, 16 * kMiB, 0},
      {"power-radix-4k", 4 * kKiB, 2 * kMiB, 512, 2 * kMiB, kGiB, 16 * kMiB, 0},
      {"s390x", 4 * kKiB, 1 * kMiB, 256, 2 * kMiB, 2 * kGiB, 4 * kMiB, 0},
      {"riscv64", 4 * kKiB, 2 * kMiB, 512, 2 * kMiB, kGiB, 4 * kMiB, 0},
      {"mips64-16k", 16 * kKiB, 32 * kMiB, 2048, 32 * kMiB, 64 * kGiB, 32 * kMiB, 0},
      {"sparc64", 8 * kKiB, 8 * kMiB, 1024, 8 * kMiB, 8 * kGiB, 32 * kMiB, 0},
      {"loongarch64-16k", 16 * kKiB, 32 * kMiB, 2048, 32 * kMiB, 64 * kGiB, 32 * kMiB, 0},
  };
  for (const GeometryRow& row : rows) {
    SCOPED_TRACE(row.profile);
    const Geometry g = load_profile(row.profile).geometry;
    EXPECT_EQ(g.page_size(), row.page);
    EXPECT_EQ(g.pmd_size(), row.pmd);
    EXPECT_EQ(g.pages_per_pmd(), row.pages_per_pmd);
    EXPECT_EQ(lock_coverage(g).pte_ptl_bytes, row.pte_lock);
    EXPECT_EQ(lock_coverage(g).pmd_ptl_bytes, row.pmd_lock);
    EXPECT_EQ(g.page_size() << g.max_order, row.max_block);
    EXPECT_EQ(g.contpte_pages * g.page_size(), row.contpte);
  }
}

TEST(Profiles, KhugepagedDefaultsAreThoseOfTheKernel) {
  const auto d = khugepaged_defaults(load_profile("arm64-64k").geometry);
  EXPECT_EQ(d.pages_to_scan, 65536u);
  EXPECT_EQ(d.max_ptes_none, 8191u);
  EXPECT_EQ(d.max_ptes_swap, 1024u);
  EXPECT_EQ(d.max_ptes_shared, 4096u);
  EXPECT_EQ(khugepaged_defaults(load_profile("power-radix-64k").geometry).pages_to_scan,
            256u);
}

TEST(Profiles, MinFreeIsCappedWhereHugePagesAreLarge) {
  const MinFree large = recommended_min_free(load_profile("arm64-64k"));
  EXPECT_EQ(large.per_zone_bytes, 5632 * kMiB);
  EXPECT_TRUE(large.capped);
  const MinFree small = recommended_min_free(load_profile("arm64-4k"));
  EXPECT_EQ(small.bytes, 22 * kMiB);
  EXPECT_FALSE(small.capped);
}

TEST(Profiles, TheMachineOfTheReport) {
  const Profile p = load_profile("arm64-64k-d05");
  EXPECT_EQ(p.cpus, 64u);
  ASSERT_EQ(p.nodes.size(), 4u);
  EXPECT_EQ(p.memory_bytes(), 261518 * kMiB);
  EXPECT_EQ(p.nodes[1].free_bytes, 62804 * kMiB);
  EXPECT_EQ(p.node_distance[0], (std::vector<int>{10, 15, 20, 20}));
  EXPECT_EQ(p.node_of_cpu[15], 0);
  EXPECT_EQ(p.node_of_cpu[16], 1);
  EXPECT_EQ(p.node_of_cpu[63], 3);
  EXPECT_EQ(p.cost_sources.at("clear_rate").confidence, Confidence::kCalibration);

  const Profile small_pages = load_profile("arm64-4k-d05");
  EXPECT_EQ(small_pages.memory_bytes(), p.memory_bytes());
  EXPECT_EQ(small_pages.costs.clear_rate, p.costs.clear_rate);
  EXPECT_EQ(small_pages.geometry.pmd_size(), 2 * kMiB);
}

TEST(Profiles, LayoutsAreThoseOfAStaticProgramAtMain) {
  const Layout layout = load_profile("arm64-64k").layout;
  EXPECT_EQ(layout.mmap_base, 0xfffff8000000u);
  EXPECT_EQ(layout.brk_start, 0x4b0000u);
  EXPECT_EQ(layout.brk, 0x4f0000u);
  ASSERT_EQ(layout.vmas.size(), 8u);
  EXPECT_EQ(layout.vmas[4].start, layout.brk_start);
  EXPECT_EQ(layout.vmas[4].end, layout.brk);
  EXPECT_EQ(layout.vmas[0].perms, "r-xp");
  EXPECT_EQ(layout.vmas[7].name, "[stack]");
}

TEST(Profiles, DescriptionShowsWhatDecidesResults) {
  const std::string text = describe(load_profile("arm64-64k-d05"));
  for (const char* line : {
           "  huge page (PMD)             512 MiB, order 13, 8192 pages\n",
           "  pgd       64 entries of 4 TiB     table 512 B\n",
           "  one PMD lock covers         4 TiB (the whole address space before 5.2)\n",
           "  khugepaged pages_to_scan    65536 pages (4 GiB each 10 s)\n",
           "  max_ptes_none/swap/shared   8191 / 1024 / 4096\n",
           "  node 0                      16 CPUs, 65308 MiB, 64892 MiB free at the start",
           "  clear_rate            6.6 GB/s  calibration  clear_page on one core\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
}

TEST(Machine, OverridesLieOverTheProfile) {
  const Profile p = load_profile(
      "arm64-64k-d05",
      parse_toml("cpus = 8\nnodes = 2\nmemory = \"16GiB\"\ncosts.clear_rate = \"10 GB/s\"",
                 "m.toml"),
      {});
  EXPECT_EQ(p.cpus, 8u);
  EXPECT_EQ(p.node_of_cpu, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(p.memory_bytes(), 16 * kGiB);
  EXPECT_EQ(p.node_distance, (std::vector<std::vector<int>>{{10, 20}, {20, 10}}));
  EXPECT_EQ(p.costs.clear_rate, 10'000'000'000u);
  EXPECT_EQ(p.cost_sources.at("clear_rate").confidence, Confidence::kAssumed);
  EXPECT_EQ(p.cost_sources.at("clear_rate").source, "set by the scenario");
  EXPECT_EQ(p.geometry.pmd_size(), 512 * kMiB);
}

TEST(Machine, FreshMemoryIsSpreadEvenly) {
  const Profile p =
      load_profile("arm64-64k-d05", parse_toml("memory = \"64GiB\"", "m"), {});
  EXPECT_EQ(p.nodes.size(), 4u);
  EXPECT_EQ(p.nodes[3].memory_bytes, 16 * kGiB);
  EXPECT_LT(p.nodes[3].free_bytes, p.nodes[3].memory_bytes);
}

TEST(Machine, ImpossibleMachinesAreRefused) {
  EXPECT_EQ(message("cpus = 0"), "m.toml:1:8: cpus must be between 1 and 4096, not 0");
  EXPECT_EQ(message("memory = \"1PiB\""),
            "m.toml:1:10: memory: 1 PiB is beyond the 48 physical address bits (256 TiB)");
  EXPECT_TRUE(
      message("geometry.page_size = \"48KiB\"")
          .starts_with("m.toml:1:22: geometry.page_size: \"48KiB\" is not a power of two"));
  EXPECT_EQ(message("geometry.page_size = \"128KiB\""),
            "m.toml:1:22: geometry.page_size: Linux has pages of 4 KiB to 64 KiB");
  EXPECT_EQ(
      message("geometry.page_size = \"16KiB\""),
      "m.toml:1:22: geometry.page_size: the page table reaches 46 address bits, fewer than "
      "the 48 of user addresses");
  EXPECT_EQ(
      message("geometry.max_order = 10"),
      "m.toml:1:22: geometry.max_order: a huge page of 512 MiB is of order 13, above the "
      "largest buddy block");
  EXPECT_EQ(message("node_of_cpu = [0, 0, 0, 1]"),
            "m.toml:1:15: node_of_cpu: there is no node 1 among the 1");
  EXPECT_EQ(message("nodes = 8"),
            "m.toml:1:9: nodes: 8 nodes for 4 CPUs; say which is where with node_of_cpu");
  EXPECT_EQ(message("nodes = [{memory = \"1GiB\", free = \"2GiB\"}]"),
            "m.toml:1:9: nodes: 2 GiB free of 1 GiB");
  EXPECT_EQ(
      message("nodes = [{memory = \"1GiB\", free_blocks = [0,0,0,0,0,0,0,0,0,0,0,0,3]}]"),
      "m.toml:1:9: nodes: its free_blocks don't fit a node of 1 GiB with blocks up to "
      "order 13");
  EXPECT_EQ(message("node_distance = [[11]]"),
            "m.toml:1:17: node_distance: a node's distance to itself is 10");
  EXPECT_EQ(message("memory = \"65KiB\""),
            "accepted");  // rounded down to pages: one of 64 KiB
  EXPECT_EQ(message("memory = \"4KiB\""),
            "m.toml:1:10: memory: 0 B a node is not a whole number of 64 KiB pages, at "
            "least one");
  EXPECT_EQ(message("costs.clear_rate = \"0 GB/s\""),
            "m.toml:1:20: costs.clear_rate: a rate of nothing never ends");
}

TEST(Machine, UnknownKeysNameTheNearest) {
  EXPECT_TRUE(message("cpu = 4").starts_with(
      "m.toml:1:1: unknown key \"cpu\" in [machine]\n  did you mean \"cpus\"?\n"));
  EXPECT_TRUE(message("page-size = \"4KiB\"")
                  .starts_with("m.toml:1:1: unknown key \"page-size\" in [machine]\n"
                               "  did you mean \"geometry.page_size\"?\n"));
  EXPECT_TRUE(message("costs.clear_rat = \"1 GB/s\"")
                  .starts_with("m.toml:1:7: unknown key \"clear_rat\" in [machine.costs]\n"
                               "  did you mean \"clear_rate\"?\n"));
  EXPECT_TRUE(message("", "arm64-64")
                  .starts_with("m.toml:1:1: there is no profile \"arm64-64\"\n  did you "
                               "mean \"arm64-64k\"?\n"));
}

TEST(Machine, CostsNeedTheirOwnUnitAndSource) {
  EXPECT_EQ(message("costs.clear_rate = \"17 ns\""),
            "m.toml:1:20: costs.clear_rate: \"ns\" is not the unit of a rate\n"
            "  accepted: B/s, kB/s, MB/s, GB/s");
  EXPECT_EQ(message("costs.clear_rate = {value = \"17 GB/s\", confidence = \"assumed\"}"),
            "m.toml:1:20: missing key \"source\" in costs.clear_rate");
}

TEST(LastLevelCache, IsWhatTheMachineSays) {
  EXPECT_FALSE(load_profile("arm64-64k").llc.modelled());
  const std::string rates =
      "costs.cached_copy_rate = \"20 GB/s\"\ncosts.memory_rate = \"9 GB/s\"\n";
  const Profile p = load_profile(
      "x86-4k",
      parse_toml(rates + "llc = {size = \"12 MiB\", slices = 6, source = \"a data sheet\", "
                         "non_temporal_threshold = \"1 MiB\", placement = \"random\"}",
                 "m.toml"),
      {"m.toml", 1, 1});
  EXPECT_EQ(p.llc.bytes, 12 * kMiB);
  EXPECT_EQ(p.llc.ways, 16u);
  EXPECT_EQ(p.llc.slices, 6u);
  EXPECT_EQ(p.llc.non_temporal_threshold, kMiB);
  EXPECT_EQ(p.llc.placement, Llc::Placement::kRandom);
  EXPECT_EQ(p.costs.memory_rate, 9'000'000'000u);
  EXPECT_NE(describe(p).find("12 MiB, 16 ways, 6 slices"), std::string::npos);

  EXPECT_EQ(message("llc.size = \"12 MiB\"", "x86-4k"),
            "m.toml:1:12: llc.size: a machine with [llc] needs costs.cached_copy_rate and "
            "costs.memory_rate");
  EXPECT_EQ(message(rates + "llc = {size = \"12 MiB\", slices = 5}", "x86-4k"),
            "m.toml:3:15: llc.size: 12 MiB don't divide into 5 slices of 16 ways with "
            "pages of 4 KiB");
  EXPECT_EQ(message("llc.size = \"0 B\"", "x86-4k"), "accepted");  // none
  EXPECT_EQ(message("llc.ways = 8", "x86-4k"), "m.toml:1:1: missing key \"size\" in [llc]");
  EXPECT_TRUE(message("llc.sise = \"12 MiB\"", "x86-4k")
                  .starts_with("m.toml:1:5: unknown key \"sise\" in [machine.llc]\n  did "
                               "you mean \"size\"?\n"));
}

TEST(Virt, AGuestPaysForExitsWalksAndWakeUps) {
  const auto machine = [](const char* text) {
    return load_profile("x86-4k-2core-laptop", parse_toml(text, "m.toml"),
                        {"m.toml", 1, 1});
  };
  const Profile bare = machine(""), guest = machine("virt = \"kvm\"\ncpus = 12");
  EXPECT_EQ(bare.virt, Virt::kNone);
  EXPECT_EQ(guest.virt, Virt::kKvm);
  EXPECT_EQ(guest.cpus, 12u);
  const Costs &b = bare.costs, &g = guest.costs;
  EXPECT_GT(g.virt_exit, Duration{});
  EXPECT_EQ(g.fault_entry_exit, b.fault_entry_exit + g.virt_fault);
  EXPECT_EQ(g.dirty_assist, b.dirty_assist + g.virt_walk);
  EXPECT_EQ(g.tlb_flush_per_cpu, b.tlb_flush_per_cpu + g.virt_exit);
  EXPECT_EQ(g.tlb_flush_receive, b.tlb_flush_receive + g.virt_exit * 2);
  EXPECT_EQ(g.wakeup_latency, b.wakeup_latency + g.virt_exit * 2 + g.virt_wake);
  EXPECT_TRUE(guest.cost_sources.contains("virt_wake"));
  // The machine's own word counts.
  EXPECT_EQ(machine("virt = \"kvm\"\ncosts.virt_wake = \"1 us\"").costs.virt_wake,
            Duration::us(1));
}

TEST(Virt, ShadowPagingHasOneLockInsteadOfTwoTables) {
  const auto machine = [](const char* text) {
    return load_profile("x86-4k-2core-laptop", parse_toml(text, "m.toml"),
                        {"m.toml", 1, 1});
  };
  const Profile nested = machine("virt = \"kvm\"");
  const Profile shadow = machine("virt = \"kvm-shadow\"");
  EXPECT_EQ(shadow.virt, Virt::kKvmShadow);
  EXPECT_EQ(nested.costs.mmu_lock_fault, Duration{});
  EXPECT_GT(shadow.costs.mmu_lock_fault, Duration{});
  EXPECT_GT(shadow.costs.mmu_lock_waiter, Duration{});
  EXPECT_EQ(shadow.costs.fault_entry_exit,
            nested.costs.fault_entry_exit - nested.costs.virt_fault);
  EXPECT_EQ(shadow.costs.tlb_flush_local,
            nested.costs.tlb_flush_local + nested.costs.virt_exit);
}

TEST(Cores, ThreadsAndTheirGainAreGivenTogether) {
  const auto machine = [](const std::string& text) {
    return load_profile("x86-4k-2core-laptop", parse_toml(text, "m.toml"),
                        {"m.toml", 1, 1});
  };
  EXPECT_EQ(machine("").smt, 1u);
  const Profile p = machine("cpus = 4\nsmt = 2\nsmt_gain = 1.25");
  EXPECT_EQ(p.smt, 2u);
  EXPECT_EQ(p.smt_gain, 1250u);
  const Profile q = machine(
      "cpus = 4\nsmt = 2\nsmt_gain = {value = 1.3, confidence = \"assumed\", source = "
      "\"a guess\"}");
  EXPECT_EQ(q.smt_gain, 1300u);
  EXPECT_EQ(q.cost_sources.at("smt_gain").source, "a guess");
  EXPECT_EQ(message("cpus = 4\nsmt = 2"),
            "m.toml:2:7: smt = 2 needs smt_gain, the work of both threads as a multiple of "
            "one thread's: 1 to 2");
  EXPECT_EQ(message("cpus = 4\nsmt = 2\nsmt_gain = 3"),
            "m.toml:3:12: smt_gain must be between 1 and 2, not 3");
  EXPECT_EQ(message("smt = 4\nsmt_gain = 1.5"),
            "m.toml:1:7: smt must be between 1 and 2, not 4");
  EXPECT_EQ(message("cpus = 3\nsmt = 2\nsmt_gain = 1.5"),
            "m.toml:2:7: smt: 3 CPUs are no cores of 2 threads");
}

TEST(Cores, IdleStatesGoDeeper) {
  const std::string c1 =
      "[[idle_state]]\nname = \"C1\"\nexit_latency = \"2 us\"\ntarget_residency = "
      "\"2 us\"\nsource = \"a test\"\n";
  const std::string c6 =
      "[[idle_state]]\nname = \"C6\"\nexit_latency = \"104 us\"\ntarget_residency = "
      "\"345 us\"\nsource = \"a test\"\n";
  const Profile p =
      load_profile("x86-4k-2core-laptop", parse_toml(c1 + c6, "m.toml"), {"m.toml", 1, 1});
  ASSERT_EQ(p.idle_states.size(), 2u);
  EXPECT_EQ(p.idle_states[1].name, "C6");
  EXPECT_EQ(p.idle_states[1].exit_latency, Duration::us(104));
  EXPECT_EQ(p.idle_states[1].target_residency, Duration::us(345));
  EXPECT_TRUE(message((c6 + c1).c_str())
                  .ends_with("idle_state: C1 is not deeper than C6 before it"));
  EXPECT_EQ(message("[[idle_state]]\nname = \"C1\"\nexit = \"1 us\""),
            "m.toml:3:1: unknown key \"exit\" in [[idle_state]]\n  accepted: name, "
            "exit_latency, target_residency, source");
}

}  // namespace
}  // namespace faultline::arch
