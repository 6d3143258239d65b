// SPDX-License-Identifier: Apache-2.0
//
// A scenario: one question, asked of one or more variants.
//
// The file's tables [machine], [kernel], [allocator], [workload] and [pressure] are what
// all variants share; each [[variant]] turns some settings of them.  Loading resolves every
// variant to a RunSpec that needs nothing else, and refuses the whole file before anything
// runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/jemalloc/settings.h"
#include "allocator/ptmalloc/settings.h"
#include "arch_profiles/profile.h"
#include "kernel_model/config.h"
#include "scenarios/run/expectation.h"
#include "scenarios/run/result.h"
#include "scenarios/workloads/workload.h"

namespace faultline::scenario {

struct AllocatorSpec {
  std::string name = "ptmalloc";
  std::string release = "2.26";
  alloc::Settings settings;  // ptmalloc's, from tunables = "glibc.malloc.arena_max=2:…"
  alloc::je::Settings jemalloc;    // from conf = "lg_dirty_mult:3,purge:vrange"
  std::vector<std::string> notes;  // what of them glibc passes over
};

// A number that somebody published about one variant.
struct PublishedNumber {
  std::string metric, source;
  Decimal value;
  Role role = Role::kPrediction;  // kCalibration: a cost was fitted to it
};

// [pressure]: a second process that keeps memory short (hog.h).
struct PressureSpec {
  unsigned cpus = 0;              // its threads; 0: there is none
  int nice = 0;                   // how they share CPUs with others: -20 takes them whole
  std::uint64_t dirty_rate = 0;   // bytes a second of each; 0: as fast as it can
  std::uint64_t target_free = 0;  // bytes left free; 0: the sum of the low watermarks
  std::uint64_t grow_rate = std::uint64_t{1} << 20;  // bytes a second that it grows by
  std::uint64_t most = 0;  // bytes that it holds at most; 0: all that there is
};

// All that one run needs.
struct RunSpec {
  std::string name, title;
  std::string machine;  // name of the profile it starts from
  arch::Profile profile;
  kernel::KernelConfig kernel;
  AllocatorSpec allocator;
  workloads::Params workload;  // knows its WorkloadDecl
  std::uint64_t seed = 0;
  unsigned processes = 1;  // that run the workload side by side, each with its allocator
  PressureSpec pressure;
  std::vector<PublishedNumber> published;
  std::vector<Condition> expect;  // the scenario's own and the variant's
};

struct Scenario {
  std::string file, name;  // name: the file's, without folder and ".toml"
  std::string title, about, source;
  // Metrics that its table shows beside times and faults; of a workload that has a rate, it
  // is among them.
  std::vector<std::string> columns = {"thp_fault_alloc", "thp_fault_fallback",
                                      "max_rss_kib"};
  std::uint64_t seed = 1;
  std::vector<RunSpec> variants;  // at least one; "default" if the file names none
};

// `--set key=value`, applied to every variant after its own settings.
struct Override {
  std::string key, value;
};

// Throws InputError.  `file` is for messages, for the name and for profiles given by path.
[[nodiscard]] Scenario load_scenario(std::string_view text, const std::string& file,
                                     const std::vector<Override>& overrides = {});
[[nodiscard]] Scenario load_scenario_file(const std::string& path,
                                          const std::vector<Override>& overrides = {});
// "kernel.preset=6.1" -> {key, value}; InputError without '='.
[[nodiscard]] Override parse_override(std::string_view text);

}  // namespace faultline::scenario
