// SPDX-License-Identifier: Apache-2.0
//
// The metrics of one run.  Counters are differences from the moment at which the workload
// starts, so that the start-up of its process doesn't count; sizes are absolute, as the
// kernel shows them.  Those of several processes are sums.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/data_caches.h"
#include "kernel_model/proc/vmstat.h"
#include "scenarios/run/evidence.h"
#include "scenarios/run/result.h"

namespace faultline::scenario {

class Measurement {
 public:
  // Takes the counters' values at the workload's start.
  Measurement(kernel::Kernel& kernel, std::vector<kernel::Process*> processes);

  // Adds the sizes of a process at its workload's end, while it still lives.
  void end(kernel::Process& process);

  // One for each of machine_metrics(), in its order, with tlb_metrics() and llc_metrics()
  // before the counters of /proc/vmstat, then `counts` in the order of their names.
  [[nodiscard]] std::vector<Metric> metrics(
      const Evidence& evidence, const std::map<std::string, std::uint64_t>& counts) const;

 private:
  void add_times(std::vector<Metric>& out, const Evidence& e) const;
  void add_process(std::vector<Metric>& out) const;
  void add_tlb(std::vector<Metric>& out) const;
  void add_llc(std::vector<Metric>& out) const;
  void add_vmstat(std::vector<Metric>& out) const;

  kernel::Kernel& kernel_;
  const std::vector<kernel::Process*> processes_;
  std::uint64_t minflt_ = 0, majflt_ = 0;
  const kernel::Vmstat vmstat_;
  kernel::DataCaches::Stats caches_;
  std::uint64_t rss_pages_ = 0, pgtables_bytes_ = 0, smaps_rss_ = 0, smaps_lazyfree_ = 0;
};

}  // namespace faultline::scenario
