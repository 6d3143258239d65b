// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/units.h"

#include <gtest/gtest.h>

namespace faultline {
namespace {

std::uint64_t value(std::string_view text, Dimension dimension) {
  const Quantity q = parse_quantity(text, dimension);
  EXPECT_TRUE(q.ok()) << q.problem;
  return q.value;
}

std::string problem(std::string_view text, Dimension dimension) {
  return parse_quantity(text, dimension).problem;
}

TEST(Units, ReadsEachDimensionInItsBaseUnit) {
  EXPECT_EQ(value("64KiB", Dimension::kSize), 65536u);
  EXPECT_EQ(value("65308 MiB", Dimension::kSize), 65308ull << 20);
  EXPECT_EQ(value("1.5 GiB", Dimension::kSize), 3ull << 29);
  EXPECT_EQ(value("17 GB/s", Dimension::kRate), 17'000'000'000u);
  EXPECT_EQ(value("1.2us", Dimension::kTime), 1'200'000u);
  EXPECT_EQ(value("0.417 ns", Dimension::kTime), 417u);
  EXPECT_EQ(value("2.4 GHz", Dimension::kFrequency), 2'400'000'000u);
  EXPECT_EQ(value("1_000 B", Dimension::kSize), 1000u);
}

TEST(Units, RefusesTheUnitOfAnotherDimension) {
  EXPECT_EQ(problem("17 ns", Dimension::kRate), "\"ns\" is not the unit of a rate");
  EXPECT_EQ(problem("2.4 GHz", Dimension::kTime), "\"GHz\" is not the unit of a time");
}

TEST(Units, SaysWhatWasMeantByAnAmbiguousOrMisspeltUnit) {
  EXPECT_EQ(problem("64 KB", Dimension::kSize),
            "\"KB\" is not the unit of a size; sizes are binary: write \"KiB\"");
  EXPECT_EQ(problem("64 kib", Dimension::kSize),
            "\"kib\" is not the unit of a size; write \"KiB\"");
}

TEST(Units, RefusesWhatIsNoQuantity) {
  EXPECT_EQ(problem("64", Dimension::kSize), "\"64\" has no unit");
  EXPECT_EQ(problem("", Dimension::kSize), "\"\" is not a size, such as \"64KiB\"");
  EXPECT_EQ(problem("-1 ns", Dimension::kTime),
            "\"-1 ns\" is not a time, such as \"1.2 us\"");
  EXPECT_EQ(problem("1. ns", Dimension::kTime),
            "\"1. ns\" is not a time, such as \"1.2 us\"");
  EXPECT_EQ(problem("0.3 B", Dimension::kSize), "\"0.3 B\" is not a whole number of bytes");
  EXPECT_EQ(problem("9000 PiB", Dimension::kSize), "\"9000 PiB\" is too large");
  EXPECT_EQ(problem("9999999999999999999 B", Dimension::kSize),
            "\"9999999999999999999 B\" is not a size, such as \"64KiB\"");
}

TEST(Units, PrintsTheLargestUnitThatIsExact) {
  EXPECT_EQ(format_quantity(512ull << 20, Dimension::kSize), "512 MiB");
  EXPECT_EQ(format_quantity(3ull << 29, Dimension::kSize), "1.5 GiB");
  EXPECT_EQ(format_quantity(65308ull << 20, Dimension::kSize), "65308 MiB");
  EXPECT_EQ(format_quantity(17'000'000'000, Dimension::kRate), "17 GB/s");
  EXPECT_EQ(format_quantity(1'250, Dimension::kTime), "1.25 ns");
  EXPECT_EQ(format_quantity(0, Dimension::kTime), "0 ps");
}

TEST(Units, PrintedQuantitiesReadBackUnchanged) {
  for (const std::uint64_t v :
       {1ull, 417ull, 65536ull, 68'479'352'832ull, 999'999'999'999ull})
    EXPECT_EQ(value(format_quantity(v, Dimension::kSize), Dimension::kSize), v);
}

}  // namespace
}  // namespace faultline
