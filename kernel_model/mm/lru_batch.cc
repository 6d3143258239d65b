// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/lru_batch.h"

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

bool may_become_lazyfree(const Page& page) {
  constexpr std::uint16_t kNeeded = Page::kLru | Page::kAnon | Page::kSwapbacked;
  return (page.flags & (kNeeded | Page::kUnevictable)) == kNeeded;
}

}  // namespace

LruBatches::LruBatches(Kernel& kernel) : kernel_(kernel), batches_(kernel.profile().cpus) {
  for (auto& batch : batches_) batch.reserve(kernel.config().lru_batch);
}

void LruBatches::mark_page_lazyfree(Pfn head, int cpu) {
  Page& page = kernel_.phys().page(head);
  if (!may_become_lazyfree(page)) return;
  if (kernel_.config().madv_free == MadvFreeRule::k4_5) {
    deactivate(page, head);
    return;
  }
  ++page.refcount;
  auto& batch = batches_[static_cast<std::size_t>(cpu)];
  batch.push_back(head);
  if (batch.size() >= kernel_.config().lru_batch || (page.flags & Page::kHead) != 0)
    apply(cpu);
}

// deactivate_page() of 4.5 to 4.11: to the head of the inactive anonymous list.  Model: at
// once, not in batches.
void LruBatches::deactivate(Page& page, Pfn head) {
  if ((page.flags & Page::kActive) == 0 || !kernel_.config().madv_free_deactivates) return;
  page.flags &= static_cast<std::uint16_t>(~Page::kActive);
  kernel_.mm_shared().lrus.move(page, head);
}

// lru_lazyfree_fn()
void LruBatches::apply(int cpu) {
  auto& batch = batches_[static_cast<std::size_t>(cpu)];
  for (const Pfn head : batch) {
    Page& page = kernel_.phys().page(head);
    if (may_become_lazyfree(page)) {
      page.flags &= static_cast<std::uint16_t>(~(Page::kSwapbacked | Page::kActive));
      page.flags |= Page::kLazyfree;
      kernel_.mm_shared().lrus.move(page, head);
      kernel_.vmstat().pglazyfree += std::uint64_t{1} << page.order;
    }
    put_page(kernel_, head, cpu);
  }
  batch.clear();
}

void LruBatches::lru_add_drain_all() {
  for (std::size_t cpu = 0; cpu < batches_.size(); ++cpu)
    lru_add_drain(static_cast<int>(cpu));
}

}  // namespace faultline::kernel
