// SPDX-License-Identifier: Apache-2.0
//
// What a run yields.  Every output (table, JSON, CSV, folded stacks) is a rendering of this
// value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/run/decimal.h"

namespace faultline::scenario {

// A metric under the name that people know it by (elapsed_s, minor-faults, thp_fault_alloc
// …).
struct Metric {
  std::string name;
  Decimal value;
};

// kCalibration: one of our costs was fitted to this number, so that it proves nothing.
enum class Role : std::uint8_t { kPrediction, kCalibration };

struct Published {
  std::string metric, source;
  Decimal theirs, ours;
  Decimal ratio;  // ours / theirs
  Role role = Role::kPrediction;
};

struct Expectation {
  std::string text;  // "thp_fault_alloc >= 1"
  bool passed = false;
  Decimal actual;
};

struct StackShare {
  std::string stack;            // root;…;leaf
  std::size_t user_frames = 0;  // the outermost ones, before the kernel's
  Duration self;                // running and spinning
  Decimal share;                // of the busy time of all tasks
};

struct LockUse {
  std::string name;
  std::uint64_t acquired = 0, contended = 0;
  Duration wait, hold;
};

// Which of the machine's costs the figures rest on.
struct CostNote {
  std::string cost, value, confidence, source;
};

struct VariantResult {
  std::string name, title;
  std::vector<Metric> metrics;
  std::vector<Published> published;
  std::vector<Expectation> expectations;
  std::vector<StackShare> top;  // all stacks with busy time, largest first
  std::vector<LockUse> locks;   // by wait, longest first
  std::vector<std::string>
      explanation;  // sentences: where the time went, who waited for whom
  std::vector<CostNote> cost_notes;
  std::vector<std::string> notes;  // what of the scenario's settings has no effect
  bool tlb_modelled = false;       // else accesses take no time for their translation
  std::string tlb_note;            // what the CPU's events count, in words
  // /proc and /sys at the end, if asked for: path ("proc/vmstat"), text.
  std::vector<std::pair<std::string, std::string>> proc;
  std::string failure;  // what the workload found wrong; empty: nothing
  [[nodiscard]] const Metric* metric(std::string_view name) const;
};

struct Result {
  std::string scenario, title, source;
  std::vector<std::string> columns;  // as the scenario's
  std::uint64_t seed = 0;
  std::vector<VariantResult> variants;
  std::vector<std::string> verdict;  // sentences that compare the variants
  // No expectation failed and no workload did.
  [[nodiscard]] bool expectations_met() const;
};

}  // namespace faultline::scenario
