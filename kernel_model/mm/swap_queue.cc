// SPDX-License-Identifier: Apache-2.0
//
// A swap device with a queue (swap.queue_depth): pages on their way out while reclaim goes
// on, and reads that wait for other reads.
//
// A page on its way out stays in the swap cache and on its LRU list until it has been
// written; then it moves to the old end, where the next scan finds it clean and frees it. A
// page on its way in is there, too, so that nobody reads it twice.
//
// Stands for: add_to_swap(), delete_from_swap_cache(), read_swap_cache_async()
// (mm/swap_state.c), swap_writepage(), end_swap_bio_write() (mm/page_io.c),
// rotate_reclaimable_page() (mm/swap.c), get_request() (block/blk-core.c),
// congestion_wait() (mm/backing-dev.c), v3.9-5.15.  Model: reads go before all writes that
// wait, at once (CFQ and deadline let some writes pass), and take the device as long as
// writes; who has overfilled the queue waits at the end of its batch, not in the midst of
// it; the end of a write is seen by whoever reclaims next; throttle_vm_writeout() doesn't
// throttle.
#include <algorithm>
#include <utility>

#include "kernel_model/mm/lru.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/swap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kCongestionWait{"congestion_wait", true};
constexpr Centre kSwapWritepage{"swap_writepage", true};
constexpr Centre kSwapReadpage{"swap_readpage", true};
constexpr Centre kGetRequest{"get_request", true};
constexpr Duration kBatchTime = Duration::ms(20);  // BLK_BATCH_TIME
constexpr Centre kLockPage{"__lock_page_or_retry", true};

// rotate_reclaimable_page(): to the old end of the inactive list.
bool rotate(Kernel& kernel, Pfn pfn) {
  Page& page = kernel.phys().page(pfn);
  Lru& lru = kernel.mm_shared().lrus;
  if ((page.flags & (Page::kActive | Page::kUnevictable)) != 0 || !lru.isolate(pfn))
    return false;
  page.flags |= Page::kLru;
  --page.refcount;
  lru.add_tail(page, pfn);
  return true;
}

}  // namespace

void Swap::make_queue() {
  moving_.resize(total_);
  slots_memory_.reserve(kernel_.phys().frames() * sizeof(std::uint32_t));
  slots_ = static_cast<std::uint32_t*>(slots_memory_.data());
}

void Swap::enter_cache(Pfn page, std::uint32_t slot, Move state) {
  FAULTLINE_CHECK_EQ(slots_[page.v], 0U);
  slots_[page.v] = slot + 1;
  moving_[slot] = {.page = page.v + 1, .write = 0, .state = state};
}

void Swap::add_to_cache(Pfn page, std::uint32_t slot) {
  enter_cache(page, slot, Move::kMapped);
  ++kernel_.phys().page(page).refcount;
}

// Its reference to the page is the caller's; the one to the slot goes.
Pfn Swap::take_moving(std::uint32_t slot, int cpu) {
  const Pfn page{std::exchange(moving_[slot], {}).page - 1};
  slots_[page.v] = 0;
  put(slot, cpu);
  return page;
}

void Swap::delete_from_cache(Pfn page, int cpu) {
  if (slots_[page.v] == 0) return;
  put_page(kernel_, take_moving(slots_[page.v] - 1, cpu), cpu);
}

void Swap::start_write(Task& task, Pfn page) {
  const std::uint32_t slot = slots_[page.v] - 1;
  task.charge(kSwapWritepage, kernel_.profile().costs.swap_page);
  write(task, slot);
  ++writer(task).written;
  moving_[slot].state = Move::kWriting;
  moving_[slot].write = ++writes_begun_;
  writes_.push_back({device_free_ - Time{} - put_off_, slot, writes_begun_});
}

void Swap::end_writes(Task& task) {
  end_reads(task.now());
  std::uint64_t rotated = 0;
  const Duration now = task.now() - Time{} - put_off_;
  for (; !writes_.empty() && writes_.front().done <= now; writes_.pop_front()) {
    Moving& page = moving_[writes_.front().slot];
    if (page.page == 0 || page.write != writes_.front().number) continue;  // taken back
    page.state = Move::kClean;
    rotated += rotate(kernel_, Pfn{page.page - 1}) ? 1 : 0;
  }
  kernel_.mm_shared().page_locks.moved(task, task.node(), rotated,
                                       kernel_.config().lru_batch);
}

// Pages that the device has still to read or write.
std::uint64_t Swap::backlog(Time now) const {
  const Duration one = kernel_.config().swap_write;
  if (device_free_ <= now || one == Duration{}) return 0;
  return static_cast<std::uint64_t>((device_free_ - now).count_ps() / one.count_ps());
}

Swap::Writer& Swap::writer(const Task& task) {
  if (writers_.size() <= task.id()) writers_.resize(task.id() + 1);
  return writers_[task.id()];
}

// Who waits gets his turn, and with it a batch for himself (ioc_set_batching()): a quarter
// of the queue (BLK_BATCH_REQ of nr_requests), within BLK_BATCH_TIME and while the queue
// isn't longer by half.
void Swap::wait_for_room(Task& task) {
  Writer& me = writer(task);
  const std::uint64_t written = std::exchange(me.written, 0);
  const std::uint64_t depth = kernel_.config().swap_queue_depth;
  const std::uint64_t queued = backlog(task.now());
  if (written == 0 || queued <= depth) return;
  if (me.batch >= written && task.now() < me.until && queued <= depth + depth / 2) {
    me.batch -= written;
    return;
  }
  const Duration page = kernel_.config().swap_write;
  const std::uint64_t batch = std::max<std::uint64_t>(depth / 4, 1);
  const Time turn =
      std::max(next_turn_, task.now() + page * static_cast<std::int64_t>(queued - depth));
  next_turn_ = turn + page * static_cast<std::int64_t>(batch);
  const Scope scope(task, kGetRequest);
  task.sync();
  task.sleep(turn - task.now());
  writer(task) = {.written = 0, .batch = batch, .until = task.now() + kBatchTime};
}

void Swap::congestion_wait(Task& task, Duration most) {
  const Scope scope(task, kCongestionWait);
  const std::uint64_t queued = backlog(task.now());
  // It ends when the queue is no longer congested (queue_congestion_off_threshold()).
  const std::uint64_t depth = kernel_.config().swap_queue_depth;
  const std::uint64_t off = depth - depth / 8 - depth / 16;
  const Duration until =
      queued <= off ? most
                    : kernel_.config().swap_write * static_cast<std::int64_t>(queued - off);
  task.sync();
  task.sleep(std::min(most, until));
}

// __read_swap_cache_async(): the page is in the swap cache before it has been read.  False:
// no memory.
bool Swap::begin_read(Task& task, std::uint32_t slot) {
  const KernelConfig& config = kernel_.config();
  PageLocks& locks = kernel_.mm_shared().page_locks;
  task.charge(locks.page_alloc());
  task.sync();
  AllocRequest request;
  request.preferred_node = task.node();
  const auto page = kernel_.phys().alloc_pages(request, task.cpu());
  locks.settle(task);
  if (!page) return false;
  if (!wanted(slot)) {  // meanwhile
    kernel_.phys().free_pages(*page, 0, task.cpu());
    return true;
  }
  ++kernel_.vmstat().pswpin;
  ++refs_[slot];
  add_swap_cache_page(kernel_, *page);
  enter_cache(*page, slot, Move::kReading);
  reads_end_ = std::max(reads_end_, task.now()) + config.swap_write;
  device_free_ = std::max(device_free_, task.now()) + config.swap_write;
  put_off_ += config.swap_write;
  const Time last = reads_.empty() ? Time{} : reads_.back().done;
  reads_.push_back({std::max({task.now() + config.swap_read, reads_end_, last}), slot});
  locks.added(task, 1);
  task.charge(kSwapReadpage, kernel_.profile().costs.swap_page);
  return true;
}

void Swap::end_reads(Time now) {
  for (; !reads_.empty() && reads_.front().done <= now; reads_.pop_front())
    moving_[reads_.front().slot].state = Move::kClean;
}

void Swap::wait_for_read(Task& task, std::uint32_t slot) {
  const auto read = std::ranges::find(reads_, slot, &Read::slot);
  if (read == reads_.end()) return;
  const Scope scope(task, kLockPage);
  const Time done = read->done;
  task.sync();
  if (done > task.now()) task.sleep(done - task.now());
  end_reads(task.now());
}

bool Swap::read_queued(Task& task, std::uint32_t slot) {
  end_reads(task.now());
  const std::uint32_t cluster = std::uint32_t{1} << kernel_.config().page_cluster;
  const std::uint32_t first = slot & ~(cluster - 1);
  const auto end =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(first + cluster, total_));
  if (wanted(slot)) {
    if (!begin_read(task, slot)) return false;
    for (std::uint32_t s = first; s < end; ++s) {
      if (s == slot || !wanted(s)) continue;
      if (!begin_read(task, s)) break;
      ++kernel_.vmstat().swap_ra;
    }
  }
  wait_for_read(task, slot);
  return true;
}

}  // namespace faultline::kernel
