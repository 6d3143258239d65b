// SPDX-License-Identifier: Apache-2.0
//
// What malloc knows of each machine's transparent huge pages, profile by profile.
#include <gtest/gtest.h>

#include <set>

#include "allocator/ptmalloc/thp_hooks.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

PlatformFacts facts_on(const std::string& profile,
                       kernel::ThpEnabled thp = kernel::ThpEnabled::kMadvise) {
  return Machine({.profile = profile.c_str(), .thp = thp, .memory_bytes = 2048 * kMiB})
      .model.facts();
}

TEST(ThpHooks, SizesOfTheSevenArchitecturesOfTheSeries) {
  struct Case {
    const char *profile, *name;
    std::uint64_t derived, verified;
  };
  const Case cases[] = {
      {"arm64-4k", "aarch64", 2 * kMiB, 2 * kMiB},
      {"arm64-16k", "aarch64", 32 * kMiB, 32 * kMiB},
      {"arm64-64k", "aarch64", 512 * kMiB, 512 * kMiB},
      {"mips64-16k", "mips", 32 * kMiB, 32 * kMiB},
      {"power-hash-64k", "powerpc", 0, 16 * kMiB},  // the hash MMU's size
      {"power-radix-64k", "powerpc", 0, 2 * kMiB},  // the radix MMU's, same page size
      {"riscv64", "riscv", 2 * kMiB, 2 * kMiB},
      {"s390x", "s390", kMiB, kMiB},
      {"sparc64", "sparc", 8 * kMiB, 8 * kMiB},
      {"x86-4k", "x86", 2 * kMiB, 2 * kMiB},
  };
  std::set<std::string_view> seen;
  for (const Case& c : cases) {
    const PlatformFacts facts = facts_on(c.profile);
    const ThpHook& hook = thp_hook(facts.architecture);
    EXPECT_EQ(hook.name, c.name);
    EXPECT_EQ(derived_thp_size(hook, facts.page_size), c.derived) << c.profile;
    EXPECT_EQ(verified_thp_size(facts), c.verified) << c.profile;
    seen.insert(hook.name);
  }
  EXPECT_EQ(seen.size(), 7U);
}

TEST(ThpHooks, WhatIsDerivedIsWhatEveryProfilesKernelSays) {
  for (const std::string& name : arch::list_profiles()) {
    const arch::Profile profile = arch::load_profile(name);
    if (!profile.geometry.has_thp) continue;
    const PlatformFacts facts = facts_on(name);
    const std::uint64_t derived =
        derived_thp_size(thp_hook(facts.architecture), facts.page_size);
    if (derived != 0) {
      EXPECT_EQ(derived, profile.geometry.pmd_size()) << name;
    }
    EXPECT_EQ(verified_thp_size(facts), profile.geometry.pmd_size()) << name;
  }
}

TEST(ThpHooks, TheKernelIsBelieved) {
  PlatformFacts facts = facts_on("x86-4k");
  facts.thp_size = 0;
  EXPECT_EQ(verified_thp_size(facts), 0U) << "a kernel without THP";
  facts.thp_size = 4 * kMiB;
  EXPECT_EQ(verified_thp_size(facts), 4 * kMiB) << "another geometry";
}

// The RFC's thp_pagesize=1 and hugetlb=1 come to the same size on each machine.
TEST(ThpHooks, TheRfcAndTheReleaseAgree) {
  for (const char* profile : {"arm64-4k", "arm64-16k", "mips64-16k", "power-hash-64k",
                              "riscv64", "s390x", "sparc64", "x86-4k"}) {
    const PlatformFacts facts = facts_on(profile);
    Settings rfc, release;
    rfc.thp_pagesize = 1;
    release.hugetlb = 1;
    EXPECT_EQ(huge_pages(facts, *find_release("rfc-2021-thp_pagesize"), rfc).thp_pagesize,
              facts.thp_size)
        << profile;
    EXPECT_EQ(huge_pages(facts, *find_release("2.36"), release).thp_pagesize,
              facts.thp_size)
        << profile;
  }
}

TEST(ThpHooks, OnlyAArch64HasADefault) {
  for (const Architecture a :
       {Architecture::kAArch64, Architecture::kMips, Architecture::kPowerPc,
        Architecture::kRiscV, Architecture::kS390, Architecture::kSparc,
        Architecture::kX86})
    EXPECT_EQ(thp_hook(a).default_size, a == Architecture::kAArch64 ? 2 * kMiB : 0U);
}

TEST(ThpHooks, AArch64sDefaultIsAdvisedByTheModeIn243AndAlwaysIn244) {
  for (const auto mode : {kernel::ThpEnabled::kAlways, kernel::ThpEnabled::kMadvise,
                          kernel::ThpEnabled::kNever}) {
    const PlatformFacts facts = facts_on("arm64-64k", mode);
    const HugePages h43 = huge_pages(facts, *find_release("2.43-aarch64"), {});
    const HugePages h44 = huge_pages(facts, *find_release("2.44-aarch64"), {});
    EXPECT_EQ(h43.thp_pagesize, 2 * kMiB) << "not the machine's 512 MiB";
    EXPECT_EQ(h44.thp_pagesize, 2 * kMiB);
    EXPECT_EQ(h43.advises, mode == kernel::ThpEnabled::kMadvise);
    EXPECT_TRUE(h44.advises);
    Settings off;
    off.hugetlb = 0;
    EXPECT_EQ(huge_pages(facts, *find_release("2.44-aarch64"), off).thp_pagesize, 0U);
  }
}

}  // namespace
}  // namespace faultline::alloc::modelled
