// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/input_error.h"

#include <gtest/gtest.h>

namespace faultline {
namespace {

const std::vector<std::string> kKeys = {"cpus", "geometry.page_size", "memory", "profile"};

TEST(InputError, PrintsPlaceMessageHintAndAcceptedValues) {
  const InputError error({{"first.toml", 14, 3},
                          "profle",
                          "unknown key \"profle\" in [machine]",
                          "did you mean \"profile\"?",
                          {"cpus", "profile"}});
  EXPECT_STREQ(error.what(),
               "first.toml:14:3: unknown key \"profle\" in [machine]\n"
               "  did you mean \"profile\"?\n"
               "  accepted: cpus, profile");
}

TEST(InputError, PlaceWithoutLineIsTheWholeInput) {
  EXPECT_EQ((Place{"--set machine.cpus=0", 0, 0}.text()), "--set machine.cpus=0");
}

TEST(NearestName, FindsASlipOfOneOrTwoLetters) {
  EXPECT_EQ(nearest_name("profle", kKeys), "profile");
  EXPECT_EQ(nearest_name("memroy", kKeys), "memory");
}

TEST(NearestName, FindsTheLastPartOfADottedName) {
  EXPECT_EQ(nearest_name("page-size", kKeys), "geometry.page_size");
}

TEST(NearestName, KeepsQuietWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("bandwidth", kKeys), std::nullopt);
  EXPECT_EQ(did_you_mean("bandwidth", kKeys), "");
}

TEST(NearestName, PrefersTheFirstOfTwoEquallyNear) {
  EXPECT_EQ(nearest_name("6.2", std::vector<std::string>{"6.1", "6.8"}), "6.1");
}

}  // namespace
}  // namespace faultline
