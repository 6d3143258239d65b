// SPDX-License-Identifier: Apache-2.0
//
// The per-VMA lock (6.4 and later): faults enter the VMA as readers without mmap_lock;
// whoever holds mmap_lock for write and changes a VMA shuts its readers out until mmap_lock
// is given back.
//
// The idea: a writer never holds the lock for long.  It waits once for the faults that are
// inside, stamps the VMA with the mm's sequence number, and the VMA counts as write-locked
// for as long as the two numbers are equal; mmap_write_unlock (or downgrade) moves the mm's
// number on, which opens all stamped VMAs at once.
//
// Stands for: vma_start_read(), vma_end_read(), vma_start_write(), vma_end_write_all()
// (include/linux/mm.h, v6.4-6.12; include/linux/mmap_lock.h, v6.18).  Model: a waiting
// writer sleeps at once, as with 6.18's refcount; the rwsem of 6.4-6.12 may spin up to 25
// us first.
#pragma once

#include <cstdint>

#include "sim/lock_stats.h"
#include "sim/task.h"

namespace faultline::kernel {

class PerVmaLock {
 public:
  // A fault enters; false if the VMA is write-locked or a writer waits: the fault must take
  // mmap_lock.  The caller has synchronised and found the VMA without letting time pass
  // since.
  [[nodiscard]] bool start_read(Task& task, std::uint64_t mm_lock_seq, LockStats& stats);
  // The fault leaves.  Synchronises first.
  void end_read(Task& task, LockStats& stats);

  // The caller holds mmap_lock for write.  Returns with no fault inside and none let in
  // until `mm_lock_seq` changes.  Free if the VMA is stamped already.
  void start_write(Task& task, std::uint64_t mm_lock_seq, LockStats& stats);

  // Stamps without waiting: a VMA that nobody can have found yet, or outside of virtual
  // time.
  void stamp(std::uint64_t mm_lock_seq) { write_seq_ = mm_lock_seq; }

  [[nodiscard]] std::uint32_t readers() const { return readers_; }
  [[nodiscard]] bool write_locked(std::uint64_t mm_lock_seq) const {
    return write_seq_ == mm_lock_seq;
  }

 private:
  void book_hold(Time now, LockStats& stats);

  std::uint32_t readers_ = 0;
  std::uint64_t write_seq_ = 0;  // the mm's number starts at 1
  Task* writer_ = nullptr;       // the one that waits; mmap_lock allows one
  const CentreTree::Node* reader_place_ =
      nullptr;  // where the latest reader stood on entering
  Time since_;  // of the last change of readers_
};

}  // namespace faultline::kernel
