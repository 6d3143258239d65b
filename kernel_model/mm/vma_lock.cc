// SPDX-License-Identifier: Apache-2.0
//
// The per-VMA lock: see vma_lock.h.
#include "kernel_model/mm/vma_lock.h"

#include <algorithm>

#include "sim/check.h"
#include "sim/engine.h"

namespace faultline::kernel {

// Sum of the readers' hold times, kept as readers x time.
void PerVmaLock::book_hold(Time now, LockStats& stats) {
  stats.read.hold += (now - since_) * readers_;
  since_ = now;
}

bool PerVmaLock::start_read(Task& task, std::uint64_t mm_lock_seq, LockStats& stats) {
  if (write_locked(mm_lock_seq) || writer_ != nullptr) {
    ++stats.read.contended;
    return false;
  }
  book_hold(task.now(), stats);
  ++readers_;
  ++stats.read.acquired;
  reader_place_ = task.where();
  task.tried(stats, this);
  return true;
}

void PerVmaLock::end_read(Task& task, LockStats& stats) {
  task.sync();
  FAULTLINE_CHECK(readers_ > 0);
  task.releases(this);
  book_hold(task.now(), stats);
  --readers_;
  // The writer stays noted until it runs, so that no fault enters before it.
  if (readers_ == 0 && writer_ != nullptr) task.engine().wake(*writer_, task.now());
}

void PerVmaLock::start_write(Task& task, std::uint64_t mm_lock_seq, LockStats& stats) {
  if (write_locked(mm_lock_seq)) return;
  task.sync();
  // Model: not followed until mmap_lock is given up, which opens them all.
  task.passes(stats);
  ++stats.write.acquired;
  if (readers_ > 0) {
    ++stats.write.contended;
    const Time start = task.now();
    const CentreTree::Node* const holder = reader_place_;
    writer_ = &task;
    while (readers_ > 0) task.block(TaskState::kLockWait);
    writer_ = nullptr;
    const Duration waited = task.now() - start;
    stats.write.wait += waited;
    stats.write.wait_max = std::max(stats.write.wait_max, waited);
    stats.blame(task.where(), LockMode::kWrite, holder, LockMode::kRead, waited);
  }
  write_seq_ = mm_lock_seq;
}

}  // namespace faultline::kernel
