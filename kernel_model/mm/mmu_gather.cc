// SPDX-License-Identifier: Apache-2.0
//
// TLB flushes and what is freed after them.
#include "kernel_model/mm/mmu_gather.h"

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/rmap.h"

namespace faultline::kernel {
namespace {

constexpr Centre kFlushTlb{"flush_tlb_range", true};
constexpr Centre kReleasePages{"release_pages", true};

// Batches of (PAGE_SIZE - sizeof(struct mmu_gather_batch)) / sizeof(void*) pointers, at
// most 10000 / that many of them, and the first one of 8 on the stack (MMU_GATHER_BUNDLE).
std::uint64_t gather_limit(std::uint64_t page_size) {
  const std::uint64_t batch = (page_size - 16) / 8;
  constexpr std::uint64_t kBundle = 8;
  return kBundle + 10'000 / batch * batch;
}

// Other CPUs that run a thread of this mm right now.  Idle CPUs are lazy and are not
// interrupted.
std::int64_t other_cpus_running(Task& task, PageTables& pages) {
  std::int64_t others = 0;
  for (const RssStat::Cache& user : pages.rss_stat().tasks()) {
    const Task* other = user.task;
    if (other == nullptr || other == &task || other->finished()) continue;
    if (task.engine().on_cpu(*other) && other->cpu() != task.cpu()) ++others;
  }
  return others;
}

// More than one thread has used this mm: POWER and s390 flush locally otherwise
// (mm_is_thread_local).
bool multi_threaded(const std::vector<RssStat::Cache>& users) {
  int count = 0;
  for (const RssStat::Cache& user : users)
    if (user.task != nullptr && ++count > 1) return true;
  return false;
}

}  // namespace

void flush_tlb_range(Task& task, PageTables& pages) {
  const arch::Profile& profile = pages.kernel().profile();
  const arch::Costs& costs = profile.costs;
  if (profile.isa == arch::Isa::kPpc64Hash || profile.isa == arch::Isa::kPpc64Radix ||
      profile.isa == arch::Isa::kS390x) {
    const bool shared = multi_threaded(pages.rss_stat().tasks());
    task.charge(kFlushTlb, shared ? costs.tlb_flush_broadcast : costs.tlb_flush_local);
    return;
  }
  if (profile.broadcast_tlbi) {
    task.charge(kFlushTlb, costs.tlb_flush_broadcast);
    return;
  }
  Duration cost = costs.tlb_flush_local;
  if (const std::int64_t others = other_cpus_running(task, pages); others > 0)
    cost += costs.tlb_flush_broadcast + costs.tlb_flush_per_cpu * others;
  task.charge(kFlushTlb, cost);
}

MmuGather::MmuGather(Task& task, PageTables& pages, ZapFor why)
    : task_(task),
      pt_(pages),
      why_(why),
      pages_to_free_(pages.kernel().mm_shared().take_gather_buffer()),
      limit_(gather_limit(pages.geometry().page_size())) {}

MmuGather::~MmuGather() {
  pt_.kernel().mm_shared().give_gather_buffer(std::move(pages_to_free_));
}

void MmuGather::flush() {
  if (flush_due_ || (!tables_to_free_.empty() && !has_flushed_)) {
    flush_tlb_range(task_, pt_);
    has_flushed_ = true;
    flush_due_ = false;
  }
  if (!pages_to_free_->empty()) free_pages();
  for (TablePage* page : tables_to_free_) pt_.free_table(task_, page);
  tables_to_free_.clear();
}

void MmuGather::free_pages() {
  const arch::Costs& costs = pt_.costs();
  Scope scope(task_, kReleasePages);
  task_.sync();
  Duration cost;
  for (const MmShared::Gathered& gone : *pages_to_free_) {
    const std::uint64_t freed = put_page(pt_.kernel(), gone.pfn, task_.cpu(), gone.refs);
    if (freed > 0) cost += freed == 1 ? costs.page_free : costs.huge_page_free;
  }
  task_.charge(cost);
  pages_to_free_->clear();
  gathered_ = 0;
}

}  // namespace faultline::kernel
