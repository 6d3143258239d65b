// SPDX-License-Identifier: Apache-2.0
//
// The two spinlocks that all CPUs of a node share over its pages: lru_lock, of the lists
// that reclaim takes pages from, and zone->lock, of the buddy lists.
//
// Both are taken for batches: pages on their way to the LRU wait on their CPU until 14 are
// together, release_pages() takes 32 off it at a time, a per-CPU page list is filled and
// drained by its batch.  What passes under lru_lock (lru_lock_page) is a part of the cost
// of a page (page_alloc, page_free, lru_scan_page, lru_move_page), what passes under
// zone->lock (zone_lock_page) comes on top of it.  A machine that gives neither has no such
// locks: nothing is taken and no time changes.
//
// Stands for: zone->lru_lock (to 4.7), pgdat->lru_lock (4.8-5.10), lruvec->lru_lock (5.11),
// __pagevec_lru_add(), release_pages() (mm/swap.c), zone->lock (mm/page_alloc.c),
// v3.9-6.18. Model: one zone and one memory cgroup a node, so these are the same lock;
// zone->lock is taken right after the batch that it stands for; mlock, compaction and split
// huge pages take neither; the lock operations are part of the cost of a page.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernel_model/types.h"
#include "sim/locks.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;

class PageLocks {
 public:
  explicit PageLocks(Kernel& kernel);

  [[nodiscard]] bool on() const { return on_; }
  // What is left of a page's cost outside lru_lock.
  [[nodiscard]] Duration page_alloc() const { return page_alloc_; }
  [[nodiscard]] Duration page_free() const { return page_free_; }
  [[nodiscard]] Duration lru_scan_page() const { return lru_scan_page_; }
  [[nodiscard]] Duration lru_move_page() const { return lru_move_page_; }

  // lru_cache_add(): new pages of the task's node wait on its CPU; a full batch goes.  A
  // compound page doesn't wait.
  void added(Task& task, unsigned pages, bool compound = false) {
    if (on_) [[unlikely]]
      add(task, pages, compound);
  }
  // lru_add_drain(): what waits on the task's CPU goes.
  void drain(Task& task) {
    if (on_) [[unlikely]]
      add(task, 0, true);
  }
  // How many more pages fit into the CPU's batch.
  [[nodiscard]] unsigned room(int cpu) const;
  // So many pages go to another list, or from theirs, a batch at a time.
  void moved(Task& task, int node, std::uint64_t pages, unsigned batch);
  // The zone's lock for the batches that have gone between its lists since the last call.
  void settle(Task& task) {
    if (on_) [[unlikely]]
      settle_zones(task);
  }

 private:
  friend class LruLock;
  void add(Task& task, unsigned pages, bool now);
  void settle_zones(Task& task);
  static void hold(Task& task, SpinLock& lock, Duration time);
  [[nodiscard]] SpinLock& lru_lock(int node) {
    return lru_locks_[static_cast<std::size_t>(node)];
  }

  Kernel& kernel_;
  bool on_;
  Duration page_alloc_, page_free_, lru_scan_page_, lru_move_page_;
  std::deque<SpinLock> lru_locks_, zone_locks_;  // of each node
  std::vector<unsigned> waiting_;                // of each CPU: lru_add_pvec
};

// Holds a node's lru_lock for the pages that are taken from its lists or put there
// meanwhile. Giving it up lets others run, and a daemon that waits there may be unwound
// (Engine::stop), so the destructor may throw.
class LruLock {
 public:
  LruLock(Task& task, PageLocks& locks, int node);
  ~LruLock() noexcept(false);
  LruLock(const LruLock&) = delete;
  LruLock& operator=(const LruLock&) = delete;
  void count(std::uint64_t pages) { pages_ += pages; }

 private:
  Task& task_;
  SpinLock* lock_;  // null: not modelled
  Duration page_;
  std::uint64_t pages_ = 0;
};

}  // namespace faultline::kernel
