// SPDX-License-Identifier: Apache-2.0
//
// GLIBC_TUNABLES and MALLOC_* as the releases take them.  What 2.36 does was tried on
// Debian 12's glibc, value by value.
#include "allocator/ptmalloc/tunables.h"

#include <gtest/gtest.h>

#include "allocator/ptmalloc/tunable_table.h"

namespace faultline::alloc {
namespace {

const std::string kThreshold = "glibc.malloc.mmap_threshold";
constexpr std::uint64_t kDefault = 128 << 10, kMost = UINT64_MAX;

TunablesResult parse(std::string_view text, std::string_view release = "2.36") {
  return parse_tunables(text, *find_release(release));
}
std::string note_of(std::string_view text, std::string_view release = "2.36") {
  const TunablesResult r = parse(text, release);
  return r.notes.empty() ? "" : r.notes.front();
}

TEST(Tunables, NothingIsTheDefaults) {
  const TunablesResult r = parse("");
  EXPECT_TRUE(r.notes.empty());
  EXPECT_EQ(r.settings.mmap_threshold, kDefault);
  EXPECT_TRUE(r.settings.dynamic_threshold);
}

TEST(Tunables, SeveralAreSeparatedByColons) {
  const TunablesResult r = parse(
      "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0:glibc.malloc.perturb=0xff");
  EXPECT_TRUE(r.notes.empty());
  EXPECT_EQ(r.settings.arena_max, 2U);
  EXPECT_EQ(r.settings.tcache_count, 0);
  EXPECT_EQ(r.settings.perturb, 255U);
  EXPECT_TRUE(r.settings.dynamic_threshold);
}

TEST(Tunables, AnyThresholdTurnsTheDynamicRuleOff) {
  for (const char* name : {"mmap_max", "mmap_threshold", "top_pad", "trim_threshold"}) {
    const TunablesResult r = parse("glibc.malloc." + std::string(name) + "=4096");
    EXPECT_TRUE(r.notes.empty()) << name;
    EXPECT_FALSE(r.settings.dynamic_threshold) << name;
  }
}

TEST(Tunables, ANumberIsReadAsFarAsItGoes) {
  struct Case {
    const char* text;
    std::uint64_t value;
    std::size_t length;
  };
  for (const Case& c : {Case{"4096", 4096, 4},
                        {"0x1000", 4096, 6},
                        {"010000", 4096, 6},
                        {" \t12", 12, 4},
                        {"+7", 7, 2},
                        {"-1", kMost, 2},
                        {"4k", 4, 1},
                        {"08", 0, 1},
                        {"k", 0, 0},
                        {"", 0, 0},
                        {"-", 0, 0},
                        {"18446744073709551615", kMost, 20},
                        {"18446744073709551616", kMost, 19}}) {
    EXPECT_EQ(tunable_number(c.text).value, c.value) << c.text;
    EXPECT_EQ(tunable_number(c.text).length, c.length) << c.text;
  }
}

// Each was seen in which blocks Debian 12's malloc mapped.
TEST(Tunables, WhatTo238MakesOfMalformedOnes) {
  struct Case {
    std::string text;
    std::uint64_t threshold;
    std::size_t notes;
  };
  const Case cases[] = {
      {"=1000000k", 1000000, 1},
      {"=abc", 0, 1},
      {"=", 0, 1},
      {"", kDefault, 1},
      {"= 1000000", 1000000, 0},
      {"=-1", kMost, 0},
      {"=+1000000", 1000000, 0},
      {"=04000000", 1 << 20, 0},
      {"=08", 0, 1},
      {"=1000000=7", 1000000, 1},
      {"=1000000:nonsense", 1000000, 1},
      {"=99999999999999999999999", kMost, 1},
  };
  for (const Case& c : cases) {
    const TunablesResult r = parse(kThreshold + c.text);
    EXPECT_EQ(r.settings.mmap_threshold, c.threshold) << c.text;
    EXPECT_EQ(r.notes.size(), c.notes) << c.text;
  }
  for (const char* before : {"glibc.malloc.nosuch=1:", "nonsense:", "=5:", ":",
                             "glibc.malloc.mxfast=200:", "glibc.malloc.arena_max=0:"})
    EXPECT_EQ(parse(before + kThreshold + "=1000000").settings.mmap_threshold, 1000000U)
        << before << ": what is passed over takes nothing else along";
  EXPECT_EQ(
      parse(kThreshold + "=1000000:" + kThreshold + "=150000").settings.mmap_threshold,
      150000U);
}

TEST(Tunables, From239OneMalformedPairSpoilsAll) {
  const std::string good = kThreshold + "=1000000";
  for (const char* release : {"2.39", "2.43-x86", "2.44"}) {
    EXPECT_EQ(parse(good, release).settings.mmap_threshold, 1000000U);
    for (const std::string& bad :
         {good + ":nonsense", "nonsense:" + good, good + "=7", ":" + good, good + ":"})
      EXPECT_EQ(parse(bad, release).settings.mmap_threshold, kDefault) << bad;
    for (const char* value : {"=4k", "=abc", "=08", "=99999999999999999999999"}) {
      const TunablesResult r =
          parse(kThreshold + value + ":glibc.malloc.arena_max=3", release);
      EXPECT_EQ(r.settings.mmap_threshold, kDefault) << value;
      EXPECT_EQ(r.settings.arena_max, 3U) << "a bad value spoils itself alone";
      EXPECT_EQ(r.notes.size(), 1U);
    }
  }
}

TEST(Tunables, SaysWhatIsPassedOver) {
  EXPECT_EQ(note_of("glibc.malloc.arena_max"),
            "\"glibc.malloc.arena_max\" is no tunable with its value: glibc 2.36 passes "
            "over it");
  EXPECT_EQ(note_of("glibc.malloc.arena_mx=2"),
            "malloc has no tunable \"glibc.malloc.arena_mx\": glibc 2.36 passes over it");
  EXPECT_EQ(note_of("glibc.malloc.arena_max=0"),
            "glibc.malloc.arena_max=\"0\" is out of range (at least 1): glibc 2.36 passes "
            "over it");
  EXPECT_EQ(note_of("glibc.malloc.mxfast=161"),
            "glibc.malloc.mxfast=\"161\" is out of range (0 to 160): glibc 2.36 passes "
            "over it");
  EXPECT_EQ(note_of("glibc.malloc.top_pad=4k"),
            "glibc 2.36 reads 4 for glibc.malloc.top_pad=\"4k\"");
  EXPECT_EQ(note_of("glibc.malloc.top_pad=4k", "2.39"),
            "glibc.malloc.top_pad=\"4k\" is no number: glibc 2.39 passes over it");
  const TunablesResult all = parse("a=1:b", "2.39");
  ASSERT_EQ(all.notes.size(), 2U);
  EXPECT_EQ(all.notes[1], "so glibc 2.39 passes over all of \"a=1:b\"");
}

TEST(Tunables, EachReleaseHasItsOwn) {
  EXPECT_EQ(parse("glibc.malloc.hugetlb=2").settings.hugetlb, 2U);
  EXPECT_FALSE(parse("").settings.hugetlb.has_value());
  EXPECT_EQ(note_of("glibc.malloc.hugetlb=1", "2.26"),
            "glibc 2.26 has no tunable \"glibc.malloc.hugetlb\" and passes over it");
  EXPECT_FALSE(parse("glibc.malloc.hugetlb=1", "2.26").settings.hugetlb.has_value());
  EXPECT_EQ(note_of("glibc.malloc.arena_max=1", "2.23"),
            "glibc 2.23 has no tunables and passes over \"glibc.malloc.arena_max=1\"");
  EXPECT_EQ(parse("glibc.malloc.arena_max=1", "2.23").settings.arena_max, 0U);
  EXPECT_EQ(
      parse("glibc.malloc.thp_pagesize=1", "rfc-2021-thp_pagesize").settings.thp_pagesize,
      1U);
  EXPECT_NE(note_of("glibc.malloc.thp_pagesize=1"), "");
}

TEST(Tunables, VariablesAreReadInEveryReleaseAndGiveWayToTunables) {
  const auto with = [](std::vector<Environment> variables, std::string_view tunables,
                       std::string_view release = "2.36") {
    return parse_tunables(tunables, *find_release(release), variables);
  };
  for (const char* release : {"2.23", "2.36", "2.44"}) {
    EXPECT_EQ(with({{"MALLOC_ARENA_MAX", "3"}}, "", release).settings.arena_max, 3U);
    EXPECT_FALSE(
        with({{"MALLOC_TOP_PAD_", "65536"}}, "", release).settings.dynamic_threshold);
  }
  EXPECT_EQ(with({{"MALLOC_MMAP_THRESHOLD_", "1000000"}}, kThreshold + "=150000")
                .settings.mmap_threshold,
            150000U);
  EXPECT_EQ(with({{"MALLOC_MMAP_THRESHOLD_", "1000000k"}}, "").settings.mmap_threshold,
            1000000U);
  EXPECT_EQ(with({{"MALLOC_MMAP_THRESHOLD_", "4k"}}, "", "2.39").settings.mmap_threshold,
            kDefault);
  const TunablesResult r = with({{"MALLOC_ARENA_MX", "3"}}, "");
  ASSERT_EQ(r.notes.size(), 1U);
  EXPECT_EQ(r.notes[0], "malloc reads no variable \"MALLOC_ARENA_MX\"");
}

}  // namespace
}  // namespace faultline::alloc
