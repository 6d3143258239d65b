// SPDX-License-Identifier: Apache-2.0
//
// The settings of one variant, still as TOML, to what a run needs.
//
// A variant's settings are the scenario's tables with the variant's own and then the
// command line's laid over them; each function here reads one of the tables and refuses
// what is wrong.
#pragma once

#include <string>
#include <string_view>

#include "arch_profiles/document.h"
#include "kernel_model/config.h"
#include "scenarios/run/scenario.h"

namespace faultline::scenario {

// The tables that hold settings: machine, kernel, allocator, workload, pressure; the seed,
// and the number of processes.
[[nodiscard]] const std::vector<std::string>& setting_keys();

// Lays settings over others.  A workload or allocator that changes its name starts from its
// own defaults: what was set for the other one doesn't carry over.
void overlay_settings(Node& bottom, const Node& top);

// {"kernel.locks.rwsem", value} as the tables that mean the same.
[[nodiscard]] Node nested(std::string_view dotted_key, const Place& key_place,
                          const Node& value);

struct Machine {
  std::string name;
  arch::Profile profile;
};
[[nodiscard]] Machine read_machine(const Node& settings);
[[nodiscard]] kernel::KernelConfig read_kernel(const Node& settings);
// Refuses what this machine can't have: hugetlb pages of another size, nodes it lacks.
void check_kernel(const Node& settings, const kernel::KernelConfig& config,
                  const arch::Profile& profile);
[[nodiscard]] AllocatorSpec read_allocator(const Node& settings,
                                           const arch::Profile& profile);
[[nodiscard]] workloads::Params read_workload(const Node& settings);

// --- load_surroundings.cc
[[nodiscard]] unsigned read_processes(const Node& settings);
[[nodiscard]] PressureSpec read_pressure(const Node& settings);
// How a program gives memory back: "none", "dontneed", "free…" or "vrange…".  Refuses one
// that this kernel has no call for; `key` as the user wrote it.
void check_purge_policy(const Place& place, const std::string& key, std::string_view policy,
                        const kernel::KernelConfig& config);
// Refuses a program that forks on an allocator that can't be copied.
void check_fork(const Node& settings, const AllocatorSpec& spec,
                const workloads::Params& workload);
// The same as check_purge_policy for a workload's parameter "policy".
void check_policy(const Node& settings, const workloads::Params& workload,
                  const kernel::KernelConfig& config);

// And for an allocator.
void check_give_back(const Node& settings, const AllocatorSpec& spec,
                     const kernel::KernelConfig& config);

}  // namespace faultline::scenario
