// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/measure.h"

#include <algorithm>
#include <utility>

#include "kernel_model/mm/mm.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/tlb/tlb.h"

namespace faultline::scenario {
namespace {

constexpr unsigned kRatioDecimals = 4;

std::uint64_t kib(std::uint64_t bytes) {
  return bytes / 1024;
}

// VmRSS as /proc/PID/status prints it, which lags behind the pages that are there.
std::uint64_t shown_rss_pages(kernel::Mm& mm) {
  const kernel::RssStat& rss = mm.pages().rss_stat();
  return rss.shown(kernel::RssKind::kAnon) + rss.shown(kernel::RssKind::kFile) +
         rss.shown(kernel::RssKind::kShmem);
}

// A process and all that were forked from it.
std::vector<const kernel::Process*> family(const kernel::Process& process) {
  std::vector<const kernel::Process*> all = {&process};
  for (const auto& p : process.kernel().processes())  // children come later
    if (std::ranges::find(all, p->real_parent) != all.end()) all.push_back(p.get());
  return all;
}

}  // namespace

Measurement::Measurement(kernel::Kernel& kernel, std::vector<kernel::Process*> processes)
    : kernel_(kernel), processes_(std::move(processes)), vmstat_(kernel.vmstat()) {
  for (const kernel::Process* p : processes_) {
    minflt_ += p->minflt;
    majflt_ += p->majflt;
  }
  if (kernel_.data_caches() != nullptr) caches_ = kernel_.data_caches()->stats();
}

void Measurement::end(kernel::Process& process) {
  rss_pages_ += shown_rss_pages(process.mm());
  const kernel::MemSizeStats smaps = kernel::smaps_rollup(process.mm());
  smaps_rss_ += smaps.rss;
  smaps_lazyfree_ += smaps.lazyfree;
  pgtables_bytes_ += process.mm().pages().pgtables_bytes();
}

void Measurement::add_times(std::vector<Metric>& out, const Evidence& e) const {
  const Decimal elapsed = Decimal::seconds(e.elapsed);
  out.push_back({"elapsed_s", elapsed});
  out.push_back({"user_s", Decimal::seconds(e.user)});
  out.push_back({"sys_s", Decimal::seconds(e.sys)});
  out.push_back({"sys_per_elapsed",
                 Decimal::ratio(Decimal::seconds(e.sys), elapsed, kRatioDecimals)});
  out.push_back(
      {"cpus_busy", Decimal::ratio(Decimal::seconds(e.busy()), elapsed, kRatioDecimals)});
  out.push_back({"spin_s", Decimal::seconds(e.spinning)});
  out.push_back({"lock_wait_s", Decimal::seconds(e.lock_wait)});
  out.push_back({"runnable_s", Decimal::seconds(e.runnable)});
  out.push_back({"kernel_threads_s", Decimal::seconds(e.kernel_threads)});
  out.push_back({"pressure_s", Decimal::seconds(e.pressure)});
}

void Measurement::add_process(std::vector<Metric>& out) const {
  const std::uint64_t page = kernel_.profile().geometry.page_size();
  std::uint64_t switches = 0;
  for (const auto& task : kernel_.engine().tasks())
    if (is_of_program(task->name()))
      switches += task->usage().voluntary_switches + task->usage().involuntary_switches;
  // As time(1): a process's children count as its own, and of their sizes the largest does.
  std::uint64_t minflt = 0, majflt = 0, hiwater = 0;
  for (const kernel::Process* p : processes_) {
    std::uint64_t largest = 0;
    for (const kernel::Process* q : family(*p)) {
      minflt += q->minflt;
      majflt += q->majflt;
      largest = std::max(largest, q->mm().hiwater_rss);
    }
    hiwater += largest;
  }
  out.push_back({"minor-faults", Decimal::count(minflt - minflt_)});
  out.push_back({"major-faults", Decimal::count(majflt - majflt_)});
  out.push_back({"max_rss_kib", Decimal::count(kib(hiwater * page))});
  out.push_back({"rss_kib", Decimal::count(kib(rss_pages_ * page))});
  out.push_back({"smaps_rss_kib", Decimal::count(kib(smaps_rss_))});
  out.push_back({"smaps_lazyfree_kib", Decimal::count(kib(smaps_lazyfree_))});
  out.push_back({"pgtables_kib", Decimal::count(kib(pgtables_bytes_))});
  out.push_back({"context-switches", Decimal::count(switches)});
}

// Nothing of the process has gone through a TLB before the workload starts.
void Measurement::add_tlb(std::vector<Metric>& out) const {
  kernel::Tlbs* const tlbs = kernel_.tlbs();
  if (tlbs == nullptr) return;
  kernel::TlbStats stats;
  for (const kernel::Process* p : processes_)
    for (const kernel::Process* q : family(*p)) stats += tlbs->stats(*q);
  const arch::TlbEvents& events = kernel_.profile().tlb_events;
  const auto add = [&](const char* name, arch::TlbEvent event) {
    if (event != arch::TlbEvent::kNone)
      out.push_back({name, Decimal::count(kernel::counted(stats, event))});
  };
  add("dTLB-loads", events.dtlb_loads);
  add("dTLB-load-misses", events.dtlb_load_misses);
  add("tlb_l1_misses", arch::TlbEvent::kL1Misses);
  add("tlb_walks", arch::TlbEvent::kWalks);
  out.push_back({"tlb_vain_walks", Decimal::count(stats.vain_walks)});
  out.push_back({"tlb_walk_s", Decimal::seconds(stats.time)});
}

// Of the whole machine, as a cache knows no processes.
void Measurement::add_llc(std::vector<Metric>& out) const {
  kernel::DataCaches* const caches = kernel_.data_caches();
  if (caches == nullptr) return;
  const kernel::DataCaches::Stats& now = caches->stats();
  out.push_back({"llc_hits", Decimal::count(now.hits - caches_.hits)});
  out.push_back({"llc_misses", Decimal::count(now.misses - caches_.misses)});
  out.push_back({"llc_writebacks", Decimal::count(now.writebacks - caches_.writebacks)});
  out.push_back({"dram_bytes", Decimal::count(now.dram_bytes - caches_.dram_bytes)});
}

void Measurement::add_vmstat(std::vector<Metric>& out) const {
  std::vector<std::uint64_t> before;
  vmstat_.for_each([&](std::string_view, std::uint64_t value) { before.push_back(value); });
  std::size_t i = 0;
  kernel_.vmstat().for_each([&](std::string_view name, std::uint64_t value) {
    out.push_back({std::string(name), Decimal::count(value - before[i++])});
  });
}

std::vector<Metric> Measurement::metrics(
    const Evidence& evidence, const std::map<std::string, std::uint64_t>& counts) const {
  std::vector<Metric> out;
  add_times(out, evidence);
  add_process(out);
  add_tlb(out);
  add_llc(out);
  add_vmstat(out);
  for (const auto& [name, value] : counts) out.push_back({name, Decimal::count(value)});
  return out;
}

}  // namespace faultline::scenario
