// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/document.h"

#include <gtest/gtest.h>

namespace faultline {
namespace {

std::string message(const auto& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

const Node kDocument = parse_toml(R"(
cpus = 64
memory = "16GiB"
[kernel]
preset = 4.15
"locks.rwsem" = "5.3"
)",
                                  "a.toml");

TEST(Document, NodesKnowTheirPlaceAndFollowTheFile) {
  EXPECT_EQ(kDocument.entries.at(0).key, "cpus");
  EXPECT_EQ(kDocument.entries.at(2).key, "kernel");
  EXPECT_EQ(kDocument.entries.at(1).key_place.text(), "a.toml:3:1");
  EXPECT_EQ(kDocument.find("memory")->place.text(), "a.toml:3:10");
  EXPECT_EQ(kDocument.find("kernel")->find("locks.rwsem")->text, "5.3");
}

TEST(Document, SyntaxErrorsAndDuplicateKeysHaveAPlace) {
  EXPECT_TRUE(
      message([] { (void)parse_toml("cpus = \n", "a.toml"); }).starts_with("a.toml:1:"));
  EXPECT_TRUE(message([] {
                (void)parse_toml("a = 1\na = 2\n", "a.toml");
              }).starts_with("a.toml:2:"));
}

TEST(Document, UnknownKeyNamesTheNearest) {
  const std::vector<std::string> known = {"cpu", "kernel", "memory"};
  EXPECT_EQ(message([&] { check_keys(kDocument, "[machine]", known); }),
            "a.toml:2:1: unknown key \"cpus\" in [machine]\n"
            "  did you mean \"cpu\"?\n"
            "  accepted: cpu, kernel, memory");
}

TEST(Document, WrongTypesAreNamed) {
  const Node& preset = *kDocument.find("kernel")->find("preset");
  EXPECT_EQ(message([&] { (void)as_text(preset, "kernel.preset"); }),
            "a.toml:5:10: kernel.preset must be a text, not the number 4.15\n"
            "  put it in quotes");
  EXPECT_EQ(message([&] { (void)as_integer(*kDocument.find("memory"), "memory"); }),
            "a.toml:3:10: memory must be an integer, not \"16GiB\"");
  EXPECT_EQ(message([&] { (void)as_size(*kDocument.find("cpus"), "cpus"); }),
            "a.toml:2:8: cpus: \"64\" has no unit\n"
            "  accepted: B, KiB, MiB, GiB, TiB, PiB");
  EXPECT_EQ(message([&] { (void)as_integer(*kDocument.find("cpus"), "cpus", 1, 8); }),
            "a.toml:2:8: cpus must be between 1 and 8, not 64");
}

TEST(Document, ChoicesNameTheNearestAndTheAccepted) {
  const Node word = parse_word("alway", {"--set x=alway", 0, 0});
  EXPECT_EQ(message([&] {
              (void)as_choice(word, "x", std::vector<std::string>{"always", "never"});
            }),
            "--set x=alway: x: there is no value \"alway\"\n"
            "  did you mean \"always\"?\n"
            "  accepted: always, never");
}

TEST(Document, WordsReadAsWhateverIsAskedFor) {
  const Place place{"--set", 0, 0};
  EXPECT_EQ(as_text(parse_word("5.3", place), "x"), "5.3");
  EXPECT_EQ(as_text(parse_word("\"5.3\"", place), "x"), "5.3");
  EXPECT_EQ(as_integer(parse_word("12", place), "x"), 12);
  EXPECT_EQ(as_integer(parse_word("0x10", place), "x"), 16);
  EXPECT_DOUBLE_EQ(as_number(parse_word("2.5", place), "x"), 2.5);
  EXPECT_TRUE(as_boolean(parse_word("true", place), "x"));
  EXPECT_EQ(as_size(parse_word("4KiB", place), "x"), 4096u);
  EXPECT_EQ(as_list(parse_word("[1, 2]", place), "x").size(), 2u);
}

}  // namespace
}  // namespace faultline
