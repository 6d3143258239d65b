// SPDX-License-Identifier: Apache-2.0
//
// lru_lock and zone->lock: see page_locks.h.
#include "kernel_model/mm/page_locks.h"

#include <algorithm>
#include <utility>

#include "kernel_model/kernel.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kPagevecLruMove{"pagevec_lru_move_fn", true};
constexpr Centre kPcpBulk{"rmqueue_bulk", true};

}  // namespace

PageLocks::PageLocks(Kernel& kernel) : kernel_(kernel) {
  const arch::Costs& costs = kernel.profile().costs;
  const Duration lru = costs.lru_lock_page;
  const Duration zone = costs.zone_lock_page;
  on_ = lru + zone > Duration{};
  // Profiles are checked for room in these.
  page_alloc_ = costs.page_alloc - lru;
  page_free_ = costs.page_free - lru;
  lru_scan_page_ = costs.lru_scan_page - lru * 2;  // taken off, and put back or elsewhere
  lru_move_page_ = costs.lru_move_page - lru;
  if (!on_) return;
  Engine& engine = kernel.engine();
  const LockCosts lock_costs{.atomic = {}, .handover = costs.lock_handover};
  LockStats& lru_stats = engine.locks().of("lru_lock");
  LockStats& zone_stats = engine.locks().of("zone->lock");
  for (std::size_t i = 0; i < kernel.profile().nodes.size(); ++i) {
    lru_locks_.emplace_back(engine, lru_stats, lock_costs);
    zone_locks_.emplace_back(engine, zone_stats, lock_costs);
  }
  waiting_.resize(kernel.profile().cpus);
}

void PageLocks::hold(Task& task, SpinLock& lock, Duration time) {
  lock.lock(task);
  task.charge(time);
  lock.unlock(task);
}

unsigned PageLocks::room(int cpu) const {
  return kernel_.config().lru_batch - waiting_[static_cast<std::size_t>(cpu)];
}

void PageLocks::add(Task& task, unsigned pages, bool now) {
  unsigned& waiting = waiting_[static_cast<std::size_t>(task.cpu())];
  waiting += pages;
  if (waiting == 0 || (waiting < kernel_.config().lru_batch && !now)) return;
  const auto go = static_cast<std::int64_t>(std::exchange(waiting, 0));
  const Scope scope(task, kPagevecLruMove);
  hold(task, lru_lock(task.node()), kernel_.profile().costs.lru_lock_page * go);
}

void PageLocks::moved(Task& task, int node, std::uint64_t pages, unsigned batch) {
  if (!on_ || pages == 0) return;
  const Scope scope(task, kPagevecLruMove);
  while (pages > 0) {
    const std::uint64_t now = std::min<std::uint64_t>(pages, batch);
    hold(task, lru_lock(node),
         kernel_.profile().costs.lru_lock_page * static_cast<std::int64_t>(now));
    pages -= now;
  }
}

void PageLocks::settle_zones(Task& task) {
  PhysMem& phys = kernel_.phys();
  for (int node = 0; node < phys.nodes(); ++node) {
    const std::uint64_t pages = phys.take_zone_work(node);
    if (pages == 0) continue;
    const Scope scope(task, kPcpBulk);
    hold(task, zone_locks_[static_cast<std::size_t>(node)],
         kernel_.profile().costs.zone_lock_page * static_cast<std::int64_t>(pages));
  }
}

LruLock::LruLock(Task& task, PageLocks& locks, int node)
    : task_(task),
      lock_(locks.on() ? &locks.lru_lock(node) : nullptr),
      page_(locks.kernel_.profile().costs.lru_lock_page) {
  if (lock_ != nullptr) lock_->lock(task);
}

LruLock::~LruLock() noexcept(false) {
  if (lock_ == nullptr) return;
  task_.charge(page_ * static_cast<std::int64_t>(pages_));
  lock_->unlock(task_);
}

}  // namespace faultline::kernel
