// SPDX-License-Identifier: Apache-2.0
//
// What is known of a workload before it runs: its name, what it does, its parameters.  The
// loader checks a scenario's [workload] table against this, `faultline list workloads`
// prints it, and the workload reads its parameters back by name.
//
// Workloads are found in a table (all.cc), not by static registration: objects that
// register themselves vanish from archives, and a table can be read.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace faultline::workloads {

// kCount: a plain number.  kBytes: a number with a unit ("1.5 GiB"), kept in bytes.
// kChoice: one of the texts in `choices`.  kOps: a program of allocator operations; there
// is no default.
enum class ParamType : std::uint8_t { kCount, kBytes, kChoice, kOps };

struct ParamDecl {
  std::string_view name;
  ParamType type = ParamType::kCount;
  std::int64_t default_value = 0;  // kChoice: index into choices
  std::int64_t min = 0, max = 0;   // inclusive; not for kChoice
  std::string_view help;
  std::span<const std::string_view> choices = {};
};

// A count that the workload itself makes; a metric of its runs.
struct CountDecl {
  std::string_view name;
  std::string_view help;
  // The workload runs for a given time: this, not elapsed time, tells its runs apart.
  bool is_rate = false;
};

struct WorkloadDecl {
  std::string_view name;
  std::string_view summary;    // one line
  bool uses_allocator = true;  // false: system calls and touches alone
  std::span<const ParamDecl> params;
  std::span<const CountDecl> counts;
  [[nodiscard]] const ParamDecl* param(std::string_view name) const;
  [[nodiscard]] const CountDecl* rate() const;  // null: it runs until it is done
};

// All workloads, in the order in which they are listed.
[[nodiscard]] std::span<const WorkloadDecl> all();
[[nodiscard]] const WorkloadDecl* find(std::string_view name);

// The values of one run: those that the scenario sets over the declared defaults.  Names
// and ranges were checked on loading.
class Params {
 public:
  explicit Params(const WorkloadDecl& decl);
  void set(std::string_view name, std::int64_t value);
  void set_text(std::string_view name, std::string text);
  // Precondition: declared.
  [[nodiscard]] std::int64_t number(std::string_view name) const;
  [[nodiscard]] std::uint64_t bytes(std::string_view name) const;
  [[nodiscard]] std::string_view choice(std::string_view name) const;
  // Of kOps; empty if it wasn't set.
  [[nodiscard]] std::string_view text(std::string_view name) const;
  [[nodiscard]] const WorkloadDecl& decl() const { return *decl_; }

 private:
  const WorkloadDecl* decl_;
  std::map<std::string, std::int64_t, std::less<>> values_;
  std::map<std::string, std::string, std::less<>> texts_;
};

// How far a run is, for whoever watches it from another host thread; results don't depend
// on it.
struct Progress {
  std::atomic<std::uint64_t> done{0}, total{0};  // in the workload's own steps
};

// What a workload says of its own run.  A workload that found something it may not find (a
// block that lost its content) sets `failure`; that is a result, and a failed run.
struct Outcome {
  std::map<std::string, std::uint64_t> counts;  // by declared name
  std::string failure;                          // empty: all well
};

}  // namespace faultline::workloads
