// SPDX-License-Identifier: Apache-2.0
//
// What a run yields.  Every output (table, JSON, CSV) is a rendering of this value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace faultline::scenario {

// A metric under the name that people know it by (elapsed_s, minor-faults, thp_fault_alloc …).
struct Metric {
  std::string name;
  double value = 0;
  bool integer = true;
};

enum class Role : std::uint8_t { kPrediction, kCalibration };

struct Published {
  std::string metric, source;
  double theirs = 0, ours = 0, ratio = 0;
  Role role = Role::kPrediction;
};

struct Expectation {
  std::string text;      // 'thp_fault_alloc >= 1'
  bool passed = false;
  double actual = 0;
};

struct StackShare {
  std::string stack;     // root;…;leaf
  double seconds = 0, share = 0;   // share of busy time (running and spinning)
};

struct LockUse {
  std::string name;
  std::uint64_t acquired = 0, contended = 0;
  double wait_s = 0, hold_s = 0;
};

struct VariantResult {
  std::string name, title;
  std::vector<Metric> metrics;
  std::vector<Published> published;
  std::vector<Expectation> expectations;
  std::vector<StackShare> top;
  std::vector<LockUse> locks;
  std::vector<std::string> explanation;   // sentences: where the time went, who waited for whom
  std::vector<std::string> cost_notes;    // which costs are calibrated, assumed …
};

struct Result {
  std::string scenario, title, source;
  std::uint64_t seed = 0;
  std::vector<VariantResult> variants;
  std::vector<std::string> verdict;       // sentences that compare the variants
  [[nodiscard]] bool expectations_met() const;
};

}  // namespace faultline::scenario
