// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/metrics.h"

#include "kernel_model/proc/vmstat.h"

namespace faultline::scenario {
namespace {

constexpr MetricDecl kMetrics[] = {
    {"elapsed_s", "virtual time from the start of the workload to its end"},
    {"user_s", "CPU time outside the kernel, all tasks"},
    {"sys_s", "CPU time in the kernel, all tasks, spinning included"},
    {"sys_per_elapsed", "sys_s / elapsed_s: CPUs busy in the kernel on average"},
    {"cpus_busy", "(user_s + sys_s) / elapsed_s"},
    {"spin_s", "CPU time spent spinning for a lock; part of user_s and sys_s"},
    {"lock_wait_s", "time asleep while waiting for a lock, all tasks"},
    {"runnable_s", "time waiting for a CPU, all tasks"},
    {"kernel_threads_s", "CPU time of khugepaged and the like; in no other time"},
    {"pressure_s",
     "CPU time of the process of [pressure], from its start; in no other time"},
    {"minor-faults", "page faults without I/O, as getrusage counts them"},
    {"major-faults", "page faults with I/O"},
    {"max_rss_kib", "largest resident set, every page counted"},
    {"rss_kib", "VmRSS at the end, as /proc/PID/status prints it"},
    {"smaps_rss_kib", "Rss of smaps at the end, exact"},
    {"smaps_lazyfree_kib",
     "LazyFree of smaps at the end: under MADV_FREE, not written since"},
    {"pgtables_kib", "page tables at the end (VmPTE)"},
    {"context-switches", "voluntary and involuntary, all tasks"},
#define X(counter) {#counter, "event counter of /proc/vmstat"},
    FAULTLINE_VMSTAT_EVENTS(X)
#undef X
};

}  // namespace

std::span<const MetricDecl> machine_metrics() {
  return kMetrics;
}

std::vector<MetricDecl> tlb_metrics(const arch::Profile& machine) {
  if (machine.tlb.empty()) return {};
  std::vector<MetricDecl> all;
  if (machine.tlb_events.dtlb_loads != arch::TlbEvent::kNone)
    all.push_back({"dTLB-loads", "perf's event, as this CPU counts it"});
  if (machine.tlb_events.dtlb_load_misses != arch::TlbEvent::kNone)
    all.push_back({"dTLB-load-misses", "perf's event, as this CPU counts it"});
  all.push_back({"tlb_l1_misses", "user accesses that the first level doesn't hold"});
  all.push_back({"tlb_walks", "of these, those that no level holds"});
  all.push_back({"tlb_vain_walks", "page walks that ended in a fault"});
  all.push_back({"tlb_walk_s", "time of walks and second-level hits; part of user_s"});
  return all;
}

std::vector<MetricDecl> llc_metrics(const arch::Profile& machine) {
  if (!machine.llc.modelled()) return {};
  return {{"llc_hits", "pages of memcpy, memset, clear_page that the cache held"},
          {"llc_misses", "pages that it didn't hold"},
          {"llc_writebacks", "dirty pages that it evicted"},
          {"dram_bytes", "filled, written back, or written past the cache"}};
}

std::vector<std::string> metric_names(const workloads::WorkloadDecl& workload,
                                      const arch::Profile& machine) {
  std::vector<std::string> names;
  for (const MetricDecl& m : tlb_metrics(machine)) names.emplace_back(m.name);
  for (const MetricDecl& m : llc_metrics(machine)) names.emplace_back(m.name);
  for (const MetricDecl& m : kMetrics) names.emplace_back(m.name);
  for (const workloads::CountDecl& c : workload.counts) names.emplace_back(c.name);
  return names;
}

}  // namespace faultline::scenario
