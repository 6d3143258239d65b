// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "arch_profiles/input_error.h"
#include "scenarios/report/json.h"
#include "scenarios/report/table.h"
#include "scenarios/report/text.h"
#include "scenarios/report/write_file.h"

namespace faultline::report {
namespace {

using namespace scenario;
using namespace time_literals;

Result sample() {
  VariantResult v;
  v.name = "reported";
  v.metrics = {{"elapsed_s", Decimal::seconds(478'089'123'456_ns)},
               {"minor-faults", Decimal::count(1'234'567)}};
  v.published = {{"elapsed_s", "a thread", Decimal(478089, 3), Decimal::seconds(478'089_ms),
                  Decimal(10000, 4), Role::kCalibration},
                 {"sys_s", "", Decimal(1467, 0), Decimal(1400, 0), Decimal(9543, 4),
                  Role::kPrediction}};
  v.expectations = {{"elapsed_s < 500", true, Decimal(478, 0)},
                    {"minor-faults > 2000000", false, Decimal(1234567, 0)}};
  v.top = {{"main;sys_x;clear_page", 1, 900_ms, Decimal(900'000, 6)},
           {"main", 1, 100_ms, Decimal(100'000, 6)},
           {"main;rare", 2, 1_ns, Decimal(1, 6)}};
  v.locks = {{"mmap_lock", 10, 4, 1500_ms, 20_ms}};
  v.explanation = {"It is slow because it is slow."};
  v.cost_notes = {{"clear_rate", "16 GB/s", "calibration", "fitted"},
                  {"pte_set", "100 ns", "assumed", ""}};
  Result r{.scenario = "mallocstress",
           .title = "A title",
           .source = "A source",
           .columns = {"thp_fault_alloc", "max_rss_kib"},
           .seed = 7,
           .variants = {v},
           .verdict = {"b: nothing"}};
  return r;
}

TEST(Json, HasTheDocumentedShape) {
  const auto doc = nlohmann::ordered_json::parse(json(sample()));
  EXPECT_EQ(doc.at("scenario"), "mallocstress");
  EXPECT_EQ(doc.at("seed"), 7);
  const auto& v = doc.at("variants").at(0);
  EXPECT_EQ(v.at("name"), "reported");
  EXPECT_EQ(v.at("metrics").at("minor-faults"), 1'234'567);
  EXPECT_EQ(v.at("metrics").at("minor-faults").type(),
            nlohmann::json::value_t::number_unsigned);
  EXPECT_DOUBLE_EQ(v.at("metrics").at("elapsed_s").get<double>(), 478.089123456);
  const auto& p = v.at("published").at(0);
  EXPECT_EQ(p.at("metric"), "elapsed_s");
  EXPECT_EQ(p.at("role"), "calibration");
  EXPECT_DOUBLE_EQ(p.at("theirs").get<double>(), 478.089);
  EXPECT_DOUBLE_EQ(p.at("ratio").get<double>(), 1.0);
  EXPECT_EQ(v.at("published").at(1).at("role"), "prediction");
  EXPECT_EQ(
      v.at("locks").at(0).dump(),
      R"({"name":"mmap_lock","acquired":10,"contended":4,"wait_s":1.5,"hold_s":0.02})");
}

TEST(Json, TopLeavesOutWhatIsBelowATenThousandth) {
  const auto doc = nlohmann::json::parse(json(sample()));
  const auto& top = doc.at("variants").at(0).at("top");
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top.at(0).at("stack"), "main;sys_x;clear_page");
  EXPECT_DOUBLE_EQ(top.at(0).at("share").get<double>(), 0.9);
}

TEST(Json, NumbersReadAsTheyWereWritten) {
  EXPECT_NE(json(sample()).find("\"elapsed_s\": 478.089123456,"), std::string::npos)
      << json(sample());
}

TEST(Csv, OneLineAVariantOneColumnAMetric) {
  Result r = sample();
  r.variants.push_back(r.variants[0]);
  r.variants[1].name = "odd, \"quoted\"";
  r.variants[1].metrics = {{"minor-faults", Decimal::count(5)},
                           {"frees", Decimal::count(6)}};
  EXPECT_EQ(csv(r),
            "scenario,seed,variant,elapsed_s,minor-faults,frees\n"
            "mallocstress,7,reported,478.089123456,1234567,\n"
            "mallocstress,7,\"odd, \"\"quoted\"\"\",,5,6\n");
}

TEST(Folded, MarksTheKernelsFunctions) {
  EXPECT_EQ(folded(sample().variants[0]),
            "main;sys_x_[k];clear_page_[k] 900000000\n"
            "main 100000000\n"
            "main;rare 1\n");
}

TEST(Text, ShowsTableComparisonExpectationsAndReasons) {
  const std::string t = text(sample());
  EXPECT_NE(t.find("reported    478.089       -      -            -     1,234,567"),
            std::string::npos)
      << t;
  EXPECT_NE(t.find("minor-faults  thp_fault_alloc  max RSS KiB\n"), std::string::npos) << t;
  EXPECT_NE(t.find("reported   elapsed_s   478.1  478.1        1.000  calibration"),
            std::string::npos)
      << t;
  EXPECT_NE(t.find("expectations: 1 of 2 met\n  FAILED reported: minor-faults > 2000000 "
                   "(it is 1,234,567)"),
            std::string::npos)
      << t;
  EXPECT_NE(t.find("why (reported):\n  - It is slow because it is slow."),
            std::string::npos)
      << t;
  EXPECT_NE(t.find("fitted to published numbers: clear_rate = 16 GB/s\nassumed: pte_set"),
            std::string::npos)
      << t;
}

TEST(Result, FailsWithAnExpectationOrAWorkload) {
  Result r = sample();
  EXPECT_FALSE(r.expectations_met());
  r.variants[0].expectations.pop_back();
  EXPECT_TRUE(r.expectations_met());
  r.variants[0].failure = "3 blocks lost what was written to them";
  EXPECT_FALSE(r.expectations_met());
}

TEST(Wrap, BreaksAtSpacesAndIndents) {
  EXPECT_EQ(wrap("one two three four", "- ", 9), "- one two\n  three\n  four\n");
  EXPECT_EQ(wrap("one\ntwo  three", "- ", 9), "- one two\n  three\n");
  EXPECT_EQ(wrap("unbreakable", "- ", 5), "- unbreakable\n");
}

std::string read(const std::filesystem::path& p) {
  std::stringstream s;
  s << std::ifstream(p).rdbuf();
  return s.str();
}

TEST(WriteFile, ReplacesWholeFilesAndLeavesNoOther) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("faultline_report_" + std::to_string(::getpid()));
  make_folder(folder.string(), "--folded");
  const auto file = folder / "out.json";
  write_file(file.string(), "first, and longer", "--json");
  write_file(file.string(), "second", "--json");
  EXPECT_EQ(read(file), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_THROW(write_file((folder / "none" / "x").string(), "x", "--json"), InputError);
  EXPECT_THROW(check_writable((folder / "none" / "x").string(), "--json"), InputError);
  EXPECT_THROW(check_writable(folder.string(), "--json"), InputError);
  EXPECT_NO_THROW(check_writable(file.string(), "--json"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace faultline::report
