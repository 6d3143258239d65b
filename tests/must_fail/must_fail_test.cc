// SPDX-License-Identifier: Apache-2.0
//
// Every scenario of this folder is refused, with the message that stands beside it.
//
// NAME.toml is the scenario; a first line "# --set KEY=VALUE" adds that option.
// NAME.expected is the whole message.  Files that end in ".profile.toml" are machines that
// scenarios name. After a change of wording: FAULTLINE_APPROVE=1 test_must_fail, then read
// the diff.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "scenarios/run/scenario.h"

namespace faultline::scenario {
namespace {

const std::string kFolder = "tests/must_fail";

std::vector<std::string> scenario_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".toml") && !name.ends_with(".profile.toml"))
      names.push_back(name.substr(0, name.size() - 5));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string message(const std::string& path) {
  constexpr std::string_view kOption = "# --set ";
  const std::string text = text_of(path);
  try {
    std::vector<Override> overrides;
    if (text.starts_with(kOption)) {
      const std::string line = text.substr(0, text.find('\n'));
      overrides.push_back(parse_override(std::string_view(line).substr(kOption.size())));
    }
    (void)load_scenario_file(path, overrides);
  } catch (const InputError& error) {
    return std::string(error.what()) + "\n";
  }
  return "accepted\n";
}

TEST(MustFail, EachScenarioIsRefusedWithItsMessage) {
  const auto names = scenario_files();
  EXPECT_GE(names.size(), 25u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    std::string base = kFolder;
    base.append("/").append(name);
    const std::string said = message(base + ".toml");
    const std::string expected = base + ".expected";
    if (std::getenv("FAULTLINE_APPROVE") != nullptr) std::ofstream(expected) << said;
    EXPECT_EQ(said, text_of(expected));
    EXPECT_NE(said, "accepted\n");
  }
}

TEST(MustFail, EveryMessageHasItsScenario) {
  const auto names = scenario_files();
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".expected")) continue;
    EXPECT_TRUE(
        std::binary_search(names.begin(), names.end(), entry.path().stem().string()))
        << name;
  }
}

}  // namespace
}  // namespace faultline::scenario
