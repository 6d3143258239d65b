// SPDX-License-Identifier: Apache-2.0
//
// Volatile ranges: memory that its process has marked as not needed for now.  The kernel
// may purge it when memory is short; whoever touches a purged page gets SIGBUS, and who
// takes the mark away is told whether something was lost.
//
// The one idea: ranges live in a tree beside the VMAs, so that marking costs neither
// mmap_sem nor a walk over page tables nor a TLB flush.  A range carries one purged flag
// for all of its pages; all ranges of the machine lie on one list by the age of their
// marking, and kswapd empties the oldest first, before it looks at any other memory.
//
// Where to read: this header; vrange.cc (marking), vrange_call.cc (the system call),
// vrange_discard.cc (one page goes), vrange_reclaim.cc (which ones go).
//
// Stands for: mm/vrange.c of M. Kim's and J. Stultz's patches: v7 (linux-mm, 12 Mar 2013,
// on 3.9-rc2), v8 (12 Jun 2013), v9 (2 Oct 2013), v10 (2 Jan 2014), and the VMA flag of v4
// to v6 (Dec 2012, Jan 2013).  None was merged.  Model: anonymous memory only; v7's trim,
// which left one byte of the cut volatile, is exact.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernel_model/config.h"
#include "kernel_model/types.h"
#include "sim/locks.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;
class VrangeRoot;
struct Fault;
struct ScanControl;
struct Table;
struct Vma;
class Pte;
enum class FaultResult : std::uint8_t;

// struct vrange
struct Vrange {
  VirtAddr start, end;
  bool purged = false;  // at least one page of it was
  VrangeRoot* root = nullptr;
  VirtAddr scan_from;  // v10: where the next scan goes on
  Vrange *newer = nullptr, *older = nullptr;
  bool on_lru = false;
  [[nodiscard]] Range range() const { return {start, end}; }
};

// The ranges of one address space, which never overlap.  Whoever changes or asks holds
// lock().
class VrangeRoot {
 public:
  explicit VrangeRoot(Mm& mm);
  ~VrangeRoot();
  VrangeRoot(const VrangeRoot&) = delete;
  VrangeRoot& operator=(const VrangeRoot&) = delete;

  [[nodiscard]] Mm& mm() const { return mm_; }
  [[nodiscard]] SpinningMutex& lock() { return lock_; }

  // vrange_add(): ranges that overlap become one with it, purged if any of them was.  One
  // that holds it already stays as it is.  Uses a node that the caller has allocated; false
  // if it wasn't needed.
  bool add(Task& task, Range range);
  // vrange_remove(): what overlaps is taken out, cut, or split in two.  Sets `purged` if
  // one of those was.  Uses a node that the caller has allocated; false if it wasn't
  // needed.
  bool remove(Task& task, Range range, bool& purged);
  // vrange_root_cleanup(): all of them.
  void clear(Task& task);
  // vrange_fork(): `child` gets a copy.  What can't be allocated is left out.
  void copy_to(Task& task, VrangeRoot& child);

  // The range that holds `at`; null if none does.
  [[nodiscard]] Vrange* find(VirtAddr at);
  [[nodiscard]] const std::map<VirtAddr, Vrange>& all() const { return ranges_; }

 private:
  using Ranges = std::map<VirtAddr, Vrange>;
  Ranges::iterator first_overlap(Range range);
  Ranges::iterator erase(Task& task, Ranges::iterator at);
  void insert(Task& task, Range range, bool purged);
  [[nodiscard]] bool covers(const Vrange& old, Range range) const;
  void resize(Task& task, Ranges::iterator at, Range range);

  Mm& mm_;
  SpinningMutex lock_;
  Ranges ranges_;
};

// What all address spaces share: the slab of nodes, the list by age, and purging.
class Vranges {
 public:
  explicit Vranges(Kernel& kernel);
  ~Vranges();

  [[nodiscard]] bool any_kind() const { return version_ != VrangeVersion::kNone; }
  [[nodiscard]] VrangeVersion version() const { return version_; }
  [[nodiscard]] bool hooks_shrink_list() const { return version_ == VrangeVersion::k10; }

  // kmem_cache_alloc() of one node; false: no memory.
  [[nodiscard]] bool alloc_node(Task& task);
  void free_node(Task& task);
  [[nodiscard]] std::uint64_t nodes() const { return nodes_; }

  // The list by age; v8 has none.  At the head: marked last.
  void lru_add(Task& task, Vrange& range);
  void lru_add_tail(Task& task, Vrange& range);
  void lru_del(Task& task, Vrange& range);
  [[nodiscard]] const Vrange* newest() const { return newest_; }
  [[nodiscard]] const Vrange* oldest() const { return oldest_; }

  // --- vrange_discard.cc
  // Every mapping of the page lies in a volatile range, and none in locked memory.
  [[nodiscard]] bool is_volatile(Task& task, Pfn page);
  // try_to_discard_one() for each mapping of an isolated page: marks take its place.
  // False: some mapping was not volatile any more.
  bool try_to_discard(Task& task, Pfn page);
  // Of `range`, base pages (v10: pieces of huge pages, too) of this node or, for -1, of
  // any; answers how many were freed.
  std::uint64_t discard_range(Task& task, Mm& mm, Range range, int node, ScanControl& sc);
  // The fault of an access to a purged page.
  FaultResult fault(Fault& fault, Table& table, Pte entry, Table& pmd);

  // --- vrange_reclaim.cc
  // discard_vrange_pages() (v7): kswapd, before it shrinks the zone.
  std::uint64_t discard_vrange_pages(Task& task, int node, std::uint64_t pages,
                                     ScanControl& sc);
  // The shrinker of v9; `of`: answers how many of so many bytes to scan.
  [[nodiscard]] std::uint64_t lru_bytes() const { return lru_bytes_; }
  std::uint64_t shrink_bytes(Task& task, std::uint64_t bytes, ScanControl& sc);
  // shrink_vrange() (v10), at the top of shrink_list().
  std::uint64_t shrink_vrange(Task& task, bool file, ScanControl& sc);

  // What v7 was to answer to VOLATILE when memory is very tight.
  [[nodiscard]] bool pressure_is_severe(const Task& task) const;

 private:
  friend class VrangeRoot;
  // The oldest range's place, and its mm with mmap_sem held for read.
  struct Victim {
    Mm* mm = nullptr;  // null: none, or its mm is busy
    VirtAddr start;
    Range range;
    bool busy = false;
  };
  enum class Takes : std::uint8_t { kToHead, kOff };
  Victim take_victim(Task& task, Takes how);
  void put_scanned(Task& task, const Victim& victim, VirtAddr to);
  bool discard_at(Task& task, Mm& mm, VirtAddr at, Pfn page);
  void note_purged(Mm& mm, VirtAddr at);
  struct Batch;
  void collect(Task& task, Mm& mm, VirtAddr& at, VirtAddr end, int node, Batch& batch);
  bool split_huge(Task& task, Mm& mm, VirtAddr at);
  void link(Vrange& range, bool at_head);
  void unlink(Vrange& range);
  [[nodiscard]] bool has_lru() const { return version_ != VrangeVersion::k8; }

  Kernel& kernel_;
  VrangeVersion version_;
  SpinLock lru_lock_;
  Vrange *newest_ = nullptr, *oldest_ = nullptr;
  std::uint64_t lru_length_ = 0, lru_bytes_ = 0;
  std::uint64_t nodes_ = 0;
  std::vector<Pfn> slab_;  // pages that the nodes lie in
};

// /proc/PID/vrange.
struct VrangeView {
  Range range;
  bool purged;
};
[[nodiscard]] std::vector<VrangeView> vranges_of(Mm& mm);

}  // namespace faultline::kernel
