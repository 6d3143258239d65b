// SPDX-License-Identifier: Apache-2.0
//
// The settings of the live kernel that its answers depend on: read, so that the model gets
// the same; changed only by --system, and then put back, also when a signal ends the run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace faultline::oracle {

struct HostSettings {
  std::string preset;       // "6.18" for 6.18.x on x86-64; "" if no preset fits
  std::string thp_enabled;  // of transparent_hugepage/: always, madvise, never
  bool use_zero_page = true;
  bool anon_names = true;          // CONFIG_ANON_VMA_NAME
  std::uint64_t nr_hugepages = 0;  // of 2 MiB
};
[[nodiscard]] HostSettings read_host();

// Counters of /proc/vmstat, of the whole machine: compared with --counters only,
// since what others do counts as well.
inline constexpr std::array<const char*, 8> kVmstatCounters = {
    "thp_fault_alloc", "thp_fault_fallback",    "thp_collapse_alloc",      "thp_split_page",
    "thp_split_pmd",   "thp_split_page_failed", "thp_deferred_split_page", "pglazyfree"};
using Counters = std::array<std::uint64_t, kVmstatCounters.size()>;
[[nodiscard]] Counters parse_vmstat(const std::string& text);

// Holds the system's settings as `change` says while it lives.
class SystemSettings {
 public:
  SystemSettings();  // remembers what is to be put back
  ~SystemSettings();
  SystemSettings(const SystemSettings&) = delete;
  SystemSettings& operator=(const SystemSettings&) = delete;
  // False: not permitted, or the pool can't be had.
  [[nodiscard]] bool change(const std::string& thp_enabled, std::uint64_t nr_hugepages);
};

}  // namespace faultline::oracle
