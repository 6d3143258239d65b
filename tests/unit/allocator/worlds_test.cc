// SPDX-License-Identifier: Apache-2.0
//
// One random program in every world: the toy system, the modelled kernel, the real kernel,
// and the machine's own malloc.  Blocks lie at the same places, hold the same bytes, and
// the same system calls are made, in the same order.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "allocator/platform/native.h"
#include "tests/unit/allocator/model_bench.h"
#include "tests/unit/allocator/toy_os.h"
#include "tests/unit/allocator/worlds.h"

namespace faultline::alloc {
namespace {

using worlds::Event;
using worlds::Play;
using worlds::Relative;

std::vector<std::string> relative(const std::vector<Event>& events) {
  Relative r;
  std::vector<std::string> all;
  for (const Event& e : events) all.push_back(r.text(e));
  return all;
}

constexpr std::size_t kRoom = 1 << 17;

std::vector<Event> in_toy(const ReleaseProfile& release, std::uint64_t seed,
                          unsigned steps) {
  toy::ToyProcess os;
  toy::ToyThread p(os);
  SysLog log(kRoom);
  std::vector<Event> events;
  Play play(p, release, seed, log, events);
  play.run(steps);
  EXPECT_EQ(play.spoilt(), 0u);
  EXPECT_EQ(play.check(), "");
  return events;
}

std::vector<Event> in_model(const char* profile, const ReleaseProfile& release,
                            std::uint64_t seed, unsigned steps) {
  modelled::Machine machine({.profile = profile});
  std::vector<Event> events;
  machine.run([&](Model& p) {
    SysLog log(kRoom);
    Play play(p, release, seed, log, events);
    play.run(steps);
    EXPECT_EQ(play.spoilt(), 0u);
    EXPECT_EQ(play.check(), "");
  });
  return events;
}

// In a child, whose break is left alone by everybody else.
std::vector<Event> natively(const ReleaseProfile& release, std::uint64_t seed,
                            unsigned steps) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto process = std::make_unique<NativeProcess>();
    Native p(*process);
    SysLog log(kRoom);
    std::vector<Event> events;
    events.reserve(2 * kRoom);
    const auto play = std::make_unique<Play<Native>>(p, release, seed, log, events);
    play->run(steps);
    const auto* bytes = reinterpret_cast<const char*>(events.data());
    for (std::size_t left = events.size() * sizeof(Event); left != 0;) {
      const ssize_t wrote = write(ends[1], bytes, left);
      if (wrote <= 0) _exit(1);
      bytes += wrote;
      left -= static_cast<std::size_t>(wrote);
    }
    _exit(play->spoilt() == 0 ? 0 : 3);
  }
  close(ends[1]);
  std::vector<Event> events;
  Event e;
  for (std::size_t got = 0;;) {
    const ssize_t n = read(ends[0], reinterpret_cast<char*>(&e) + got, sizeof e - got);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
    if (got < sizeof e) continue;
    events.push_back(e);
    got = 0;
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return events;
}

void expect_same(const std::vector<std::string>& a, const std::vector<std::string>& b,
                 const std::string& what) {
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(a[i], b[i]) << what << ", event " << i;
  ASSERT_EQ(a.size(), b.size()) << what;
}

class Worlds : public testing::TestWithParam<const char*> {};

TEST_P(Worlds, SameProgramSameOffsetsContentsAndCalls) {
  const ReleaseProfile& release = *find_release(GetParam());
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const std::vector<std::string> model =
        relative(in_model("x86-4k", release, seed, 8000));
    ASSERT_GT(model.size(), 8050u);  // system calls as well
    expect_same(model, relative(in_toy(release, seed, 8000)), "toy");
    if (sysconf(_SC_PAGESIZE) == 4096)
      expect_same(model, relative(natively(release, seed, 8000)), "native");
  }
}

TEST_P(Worlds, SameOn64KPages) {
  const ReleaseProfile& release = *find_release(GetParam());
  const std::vector<std::string> model = relative(in_model("arm64-64k", release, 7, 8000));
  PlatformFacts facts;
  facts.page_size = 65536;
  toy::ToyProcess os(facts);
  toy::ToyThread p(os);
  SysLog log(kRoom);
  std::vector<Event> events;
  Play play(p, release, 7, log, events);
  play.run(8000);
  expect_same(model, relative(events), "toy");
}

INSTANTIATE_TEST_SUITE_P(Releases, Worlds,
                         testing::Values("2.23", "2.26", "2.36", "2.39", "2.43-x86",
                                         "2.44"),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (char& c : name)
                             if (c == '.' || c == '-') c = '_';
                           return name;
                         });

// The machine's own malloc puts every block where release 2.36 does.
TEST(RealGlibc, PutsBlocksAtTheSameOffsets) {
  constexpr unsigned kSteps = 20000;
  for (std::uint64_t seed = 21; seed <= 24; ++seed) {
    const std::string command = std::string(GLIBC_REPLAY) + " " + std::to_string(seed) +
                                " " + std::to_string(kSteps);
    FILE* const replay = popen(command.c_str(), "r");
    ASSERT_NE(replay, nullptr);
    std::vector<std::string> lines;
    char line[64];
    while (fgets(line, sizeof line, replay) != nullptr)
      lines.emplace_back(line, strcspn(line, "\n"));
    ASSERT_EQ(pclose(replay), 0);
    if (lines.at(0) != "2.36") GTEST_SKIP() << "this machine has glibc " << lines[0];
    ASSERT_EQ(lines.size(), kSteps + 1);
    unsigned step = 0;
    for (const std::string& ours : relative(in_toy(*find_release("2.36"), seed, kSteps))) {
      const bool result =
          ours == "0" || ours.starts_with("heap+") || ours.starts_with("map");
      if (!result) continue;
      const std::string theirs = lines[++step];
      const std::string as_theirs = ours.starts_with("heap+") ? ours.substr(5)
                                    : ours == "0"             ? "0"
                                                              : "-1";
      ASSERT_EQ(as_theirs, theirs) << "step " << step << " of seed " << seed;
    }
    EXPECT_EQ(step, kSteps);
  }
}

}  // namespace
}  // namespace faultline::alloc
