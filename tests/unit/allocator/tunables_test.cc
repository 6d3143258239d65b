// SPDX-License-Identifier: Apache-2.0
#include "allocator/ptmalloc/tunables.h"

#include <gtest/gtest.h>

namespace faultline::alloc {
namespace {

TunablesResult parse(std::string_view text, std::string_view release = "2.36") {
  return parse_tunables(text, *find_release(release));
}

std::string problem_of(std::string_view text) {
  return parse(text).problem;
}

TEST(Tunables, NothingIsTheDefaults) {
  const TunablesResult r = parse("");
  EXPECT_EQ(r.problem, "");
  EXPECT_EQ(r.settings.mmap_threshold, 128U << 10);
  EXPECT_TRUE(r.settings.dynamic_threshold);
}

TEST(Tunables, SeveralAreSeparatedByColons) {
  const TunablesResult r = parse(
      "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0:glibc.malloc.perturb=0xff");
  EXPECT_EQ(r.problem, "");
  EXPECT_EQ(r.settings.arena_max, 2U);
  EXPECT_EQ(r.settings.tcache_count, 0);
  EXPECT_EQ(r.settings.perturb, 255U);
  EXPECT_TRUE(r.settings.dynamic_threshold);
}

TEST(Tunables, AnyThresholdTurnsTheDynamicRuleOff) {
  for (const char* name : {"mmap_max", "mmap_threshold", "top_pad", "trim_threshold"}) {
    const TunablesResult r = parse("glibc.malloc." + std::string(name) + "=4096");
    EXPECT_EQ(r.problem, "") << name;
    EXPECT_FALSE(r.settings.dynamic_threshold) << name;
  }
}

TEST(Tunables, SaysWhatItCannotDo) {
  EXPECT_EQ(problem_of("glibc.malloc.arena_max"),
            "\"glibc.malloc.arena_max\" is not a tunable with its value");
  EXPECT_EQ(problem_of("=2"), "\"=2\" is not a tunable with its value");
  EXPECT_EQ(problem_of("glibc.malloc.arena_mx=2"),
            "unknown tunable \"glibc.malloc.arena_mx\"");
  EXPECT_EQ(parse("glibc.malloc.arena_mx=2").accepted.front(), "glibc.malloc.arena_max");
  EXPECT_EQ(problem_of("glibc.malloc.arena_max=0"),
            "glibc.malloc.arena_max can't be \"0\": a number, at least 1");
  EXPECT_EQ(problem_of("glibc.malloc.mxfast=161"),
            "glibc.malloc.mxfast can't be \"161\": a number, 0 to 160");
  EXPECT_EQ(problem_of("glibc.malloc.top_pad=4k"),
            "glibc.malloc.top_pad can't be \"4k\": a number, at least 0");
}

TEST(Tunables, EachReleaseHasItsOwn) {
  EXPECT_EQ(parse("glibc.malloc.hugetlb=2").settings.hugetlb, 2U);
  EXPECT_FALSE(parse("").settings.hugetlb.has_value());
  EXPECT_EQ(parse("glibc.malloc.hugetlb=1", "2.26").problem,
            "2.26 has no tunable \"glibc.malloc.hugetlb\"");
  EXPECT_EQ(parse("glibc.malloc.tcache_count=1", "2.23").problem,
            "2.23 has no tunable \"glibc.malloc.tcache_count\"");
  EXPECT_EQ(
      parse("glibc.malloc.thp_pagesize=1", "rfc-2021-thp_pagesize").settings.thp_pagesize,
      1U);
  EXPECT_NE(parse("glibc.malloc.thp_pagesize=1").problem, "");
}

}  // namespace
}  // namespace faultline::alloc
