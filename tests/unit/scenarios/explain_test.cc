// SPDX-License-Identifier: Apache-2.0
//
// The explanation is computed from the evidence: each test gives it a made-up run and looks
// for that run's own names and numbers.
#include "scenarios/run/explain.h"

#include <gtest/gtest.h>

#include "scenarios/run/phrase.h"

namespace faultline::scenario {
namespace {

using namespace time_literals;

bool says(const std::vector<std::string>& sentences, const std::string& words) {
  for (const std::string& s : sentences)
    if (s.find(words) != std::string::npos) return true;
  return false;
}

std::string all(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& s : sentences) out += s + "\n";
  return out;
}

// Four tasks for 10 s on 8 CPUs: 12 s busy, 20 s waiting for "cellar_door".
Evidence convoy() {
  Evidence e;
  e.elapsed = 10'000_ms;
  e.cpus = 8;
  e.tasks = 4;
  e.running = 12'000_ms;
  e.user = 3'000_ms;
  e.sys = 9'000_ms;
  e.lock_wait = 20'000_ms;
  e.sleeping = 8'000_ms;
  e.stacks = {{{"main", "cook"}, 2, 3'000_ms, {}, {}},
              {{"main", "cook", "sys_stir", "boil"}, 2, 9'000_ms, {}, {}},
              {{"main", "cook", "sys_open"}, 2, {}, {}, 20'000_ms}};
  Evidence::Lock lock;
  lock.name = "cellar_door";
  lock.read.acquired = 100;
  lock.read.hold = 9'000_ms;
  lock.write.acquired = lock.write.contended = 50;
  lock.write.wait = 20'000_ms;
  lock.write.hold = 100_ms;
  lock.blames = {{{"main", "cook", "sys_open"},
                  {"main", "cook", "sys_stir", "boil"},
                  LockMode::kWrite,
                  LockMode::kRead,
                  30,
                  15'000_ms},
                 {{"main", "cook", "sys_open"},
                  {"main", "cook", "sys_open"},
                  LockMode::kWrite,
                  LockMode::kWrite,
                  20,
                  5'000_ms}};
  Evidence::Lock spoon;
  spoon.name = "spoon";
  spoon.write.acquired = 10;
  spoon.write.hold = 1_ms;
  e.locks = {spoon, lock};
  return e;
}

TEST(Explain, SaysWhereTheCpuTimeWent) {
  const auto s = explain(convoy());
  EXPECT_TRUE(says(s, "75.0 % of the 12.00 s of CPU time is spent in boil")) << all(s);
  EXPECT_TRUE(says(s, "boil < sys_stir < cook < main")) << all(s);
  EXPECT_TRUE(says(s, "25.0 % in cook")) << all(s);
  EXPECT_TRUE(says(s, "75.0 % of it is system time")) << all(s);
}

TEST(Explain, SaysHowParallelTheRunWasAndWhatKeptItFromMore) {
  const auto s = explain(convoy());
  EXPECT_TRUE(says(s, "On average 1.20 of 8 CPUs are busy")) << all(s);
  EXPECT_TRUE(says(s, "50.0 % asleep waiting for a lock")) << all(s);
  EXPECT_TRUE(says(s, "20.0 % in a sleep of their own")) << all(s);
  EXPECT_FALSE(says(s, "waiting for a CPU")) << all(s);
}

TEST(Explain, NamesTheLockItsWaitersAndItsHolders) {
  const auto s = explain(convoy());
  EXPECT_TRUE(says(s, "The lock waited for is cellar_door: 20.00 s, 100.0 %")) << all(s);
  EXPECT_TRUE(says(s, "on average 0.90 readers hold it, writers 1.0 % of the time"))
      << all(s);
  EXPECT_TRUE(
      says(s,
           "75.0 % of the wait for cellar_door is writers in sys_open < cook waiting while "
           "boil < sys_stir < cook holds it for reading"))
      << all(s);
  EXPECT_TRUE(says(s, "25.0 % is writers in sys_open < cook waiting while sys_open"))
      << all(s);
  EXPECT_FALSE(says(s, "spoon")) << all(s);
}

TEST(Explain, IsSilentAboutLocksThatNobodyWaitsFor) {
  Evidence e = convoy();
  e.lock_wait = {};
  for (auto& lock : e.locks) lock.write.wait = lock.read.wait = {};
  const auto s = explain(e);
  EXPECT_EQ(s.size(), 2U) << all(s);
  EXPECT_FALSE(says(s, "cellar_door")) << all(s);
}

TEST(Explain, SaysWhereTheSpinningIs) {
  Evidence e = convoy();
  e.spinning = 6'000_ms;
  e.running = 6'000_ms;
  e.stacks[1].spinning = 6'000_ms;
  EXPECT_TRUE(
      says(explain(e),
           "50.0 % of CPU time (6.000 s) is spinning for a lock, most of it in boil"))
      << all(explain(e));
}

Evidence scaled(const Evidence& from, std::int64_t times) {
  Evidence e = from;
  e.elapsed = e.elapsed * times / 100;
  return e;
}

TEST(CompareVariants, NamesTheFunctionThatChangedMost) {
  const Evidence slow = convoy();
  Evidence faster = convoy();
  faster.elapsed = 2'000_ms;
  faster.running = 4'000_ms;
  faster.lock_wait = {};
  faster.stacks[1].busy = 1'000_ms;
  const auto s = compare_variants({{"slow", &slow}, {"quick", &faster}});
  ASSERT_EQ(s.size(), 2U);
  EXPECT_EQ(s[0],
            "quick: elapsed 5.00 times less, CPU time 3.00 times less, CPUs busy 1.20 -> "
            "2.00; most of it in "
            "boil (-8.000 s of CPU time); time asleep for locks 20.00 -> 0.000.");
}

TEST(CompareVariants, SortsChangesByWhetherTheyMatter) {
  const Evidence first = convoy();
  const Evidence alike = scaled(first, 101), quick = scaled(first, 10),
                 slow = scaled(first, 200);
  const auto s = compare_variants(
      {{"first", &first}, {"alike", &alike}, {"quick", &quick}, {"slow", &slow}});
  ASSERT_EQ(s.size(), 4U);
  EXPECT_EQ(s[0], "alike: no difference: elapsed +1.00 %, CPU time unchanged.");
  EXPECT_TRUE(says(s, "slow: elapsed 2.00 times more")) << all(s);
  EXPECT_EQ(s.back(),
            "Against first, faster: quick; slower: slow; no difference in elapsed time "
            "(below 2 %): alike.");
  EXPECT_TRUE(compare_variants({{"alone", &first}}).empty());
}

// Runs of a given length: who does more in it is faster.
TEST(CompareVariants, JudgesByTheRateWhereThereIsOne) {
  const Evidence run = convoy();
  const auto at = [&](const char* name, std::uint64_t rate) {
    return NamedEvidence{name, &run, Rate{"dishes-per-s", Decimal::count(rate)}};
  };
  const auto s = compare_variants({at("first", 100),
                                   at("many", 400),
                                   at("few", 50),
                                   at("alike", 101),
                                   {"untold", &run}});
  EXPECT_TRUE(says(s, "many: dishes-per-s 4.00 times more, CPU time unchanged")) << all(s);
  EXPECT_TRUE(says(s, "alike: no difference: dishes-per-s +1.00 %")) << all(s);
  EXPECT_TRUE(says(s, "untold: no difference: elapsed unchanged")) << all(s);
  EXPECT_EQ(s.back(),
            "Against first, faster: many; slower: few; no difference in dishes-per-s "
            "(below 2 %): alike and untold.");
}

TEST(Phrase, FewDigits) {
  EXPECT_EQ(say_seconds(1'467'042_ms), "1,467 s");
  EXPECT_EQ(say_seconds(298_ms), "0.298 s");
  EXPECT_EQ(say_seconds(41_us), "41.00 us");
  EXPECT_EQ(say_seconds(Duration{}), "0 s");
  EXPECT_EQ(say_percent(1_ns, 1'000'000_ms), "< 0.1 %");
  EXPECT_EQ(say_percent(942_ms, 1'000_ms), "94.2 %");
  EXPECT_EQ(say_change(Decimal::count(0), Decimal::count(7)), "0 -> 7");
}

}  // namespace
}  // namespace faultline::scenario
