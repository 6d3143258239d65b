// SPDX-License-Identifier: Apache-2.0
//
// TLB flushes and what is freed after them.
#include "kernel_model/mm/mmu_gather.h"

#include <utility>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/shadow_mmu.h"
#include "kernel_model/proc/vmstat.h"
#include "kernel_model/tlb/tlb.h"

namespace faultline::kernel {
namespace {

constexpr Centre kFlushTlb{"flush_tlb_range", true};
constexpr Centre kReceived{"smp_call_function_interrupt", true};
constexpr Centre kReleasePages{"release_pages", true};

// Other CPUs that run a thread of this mm right now.  Idle CPUs are lazy and are not
// interrupted.
std::int64_t interrupt_other_cpus(Task& task, PageTables& pages) {
  std::vector<Duration>& owed = pages.kernel().mm_shared().interrupts;
  const Duration receive = pages.costs().tlb_flush_receive;
  std::int64_t others = 0;
  for (const RssStat::Cache& user : pages.rss_stat().tasks()) {
    const Task* other = user.task;
    if (other == nullptr || other == &task || other->finished()) continue;
    if (!task.engine().on_cpu(*other) || other->cpu() == task.cpu()) continue;
    ++others;
    if (receive != Duration{}) owed[static_cast<std::size_t>(other->cpu())] += receive;
  }
  return others;
}

// Model: a CPU pays for the IPIs it has taken when its task flushes next.
void pay_interrupts(Task& task, PageTables& pages) {
  Duration& owed =
      pages.kernel().mm_shared().interrupts[static_cast<std::size_t>(task.cpu())];
  if (owed == Duration{}) return;
  task.charge(kReceived, owed);
  owed = {};
}

// More than one thread has used this mm: POWER and s390 flush locally otherwise
// (mm_is_thread_local).
bool multi_threaded(const std::vector<RssStat::Cache>& users) {
  int count = 0;
  for (const RssStat::Cache& user : users)
    if (user.task != nullptr && ++count > 1) return true;
  return false;
}

void charge_flush(Task& task, PageTables& pages) {
  const arch::Profile& profile = pages.kernel().profile();
  const arch::Costs& costs = profile.costs;
  Vmstat& vmstat = pages.kernel().vmstat();
  if (profile.isa == arch::Isa::kPpc64Hash || profile.isa == arch::Isa::kPpc64Radix ||
      profile.isa == arch::Isa::kS390x) {
    const bool shared = multi_threaded(pages.rss_stat().tasks());
    ++(shared ? vmstat.nr_tlb_remote_flush : vmstat.nr_tlb_local_flush_one);
    task.charge(kFlushTlb, shared ? costs.tlb_flush_broadcast : costs.tlb_flush_local);
    return;
  }
  if (profile.broadcast_tlbi) {
    ++vmstat.nr_tlb_remote_flush;
    task.charge(kFlushTlb, costs.tlb_flush_broadcast);
    return;
  }
  Duration cost = costs.tlb_flush_local;
  if (costs.tlb_flush_receive != Duration{}) pay_interrupts(task, pages);
  if (const std::int64_t others = interrupt_other_cpus(task, pages); others > 0) {
    cost += costs.tlb_flush_broadcast + costs.tlb_flush_per_cpu * others;
    ++vmstat.nr_tlb_remote_flush;
    vmstat.nr_tlb_remote_flush_received += static_cast<std::uint64_t>(others);
  } else {
    ++vmstat.nr_tlb_local_flush_one;
  }
  task.charge(kFlushTlb, cost);
  if (ShadowMmu* const shadow = pages.kernel().shadow_mmu()) shadow->sync_roots(task);
}

}  // namespace

void flush_tlb_range(Task& task, PageTables& pages, Range range, std::uint64_t stride) {
  charge_flush(task, pages);
  Tlbs* const tlbs = pages.kernel().tlbs();
  if (tlbs == nullptr) return;
  if (stride == 0) stride = pages.geometry().page_size();
  tlbs->flush(pages.mm().process(), range, stride);
}

MmuGather::MmuGather(Task& task, PageTables& pages, ZapFor why)
    : task_(task),
      pt_(pages),
      why_(why),
      limit_(pages.kernel().mm_shared().gather_limit),
      release_batch_(pages.kernel().config().release_batch) {}

MmuGather::~MmuGather() {
  if (more_pages_) pt_.kernel().mm_shared().give_gather_buffer(std::move(more_pages_));
}

void MmuGather::batch_more(Gathered page) {
  if (!more_pages_) more_pages_ = pt_.kernel().mm_shared().take_gather_buffer();
  more_pages_->push_back(page);
}

void MmuGather::flush() {
  if (flush_due_ || (!tables_to_free_.empty() && !has_flushed_)) {
    flush_tlb_range(task_, pt_, range_, only_huge_ ? pt_.geometry().pmd_size() : 0);
    has_flushed_ = true;
    flush_due_ = false;
    range_ = {};
    only_huge_ = false;
  }
  if (bundled_ != 0) free_pages();
  for (TablePage* page : tables_to_free_) pt_.free_table(task_, page);
  tables_to_free_.clear();
}

// What has gone and isn't paid for yet.
struct MmuGather::Freed {
  Duration cost;
  unsigned off_lru = 0;
};

// The pages, and the locks that they were freed under.
void MmuGather::pay_for(Freed& freed) {
  PageLocks& locks = pt_.kernel().mm_shared().page_locks;
  task_.charge(std::exchange(freed.cost, {}));
  locks.moved(task_, task_.node(), std::exchange(freed.off_lru, 0), release_batch_);
  locks.settle(task_);
}

void MmuGather::free_gathered(const Gathered* gone, std::uint64_t count, Freed& freed) {
  Kernel& kernel = pt_.kernel();
  const PageLocks& locks = kernel.mm_shared().page_locks;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t most =
        locks.on() ? std::min<std::uint64_t>(count - done, release_batch_ - freed.off_lru)
                   : count - done;
    const std::uint64_t run = put_page_run(kernel, gone + done, most, task_.cpu());
    freed.cost += locks.page_free() * static_cast<std::int64_t>(run);
    freed.off_lru += static_cast<unsigned>(run);
    done += run;
    if (run == 0) {
      const Gathered& one = gone[done++];
      const std::uint64_t pages = put_page(kernel, one.pfn, task_.cpu(), one.refs);
      if (pages == 0) continue;
      freed.cost += pages == 1 ? locks.page_free() : pt_.costs().huge_page_free;
      ++freed.off_lru;
    }
    if (locks.on() && freed.off_lru == release_batch_) pay_for(freed);
  }
}

void MmuGather::free_pages() {
  Scope scope(task_, kReleasePages);
  task_.sync();
  Freed freed;
  free_gathered(bundle_.data(), bundled_, freed);
  if (more_pages_) {
    free_gathered(more_pages_->data(), more_pages_->size(), freed);
    more_pages_->clear();
  }
  pay_for(freed);
  bundled_ = 0;
  gathered_ = 0;
}

}  // namespace faultline::kernel
