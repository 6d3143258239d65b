// SPDX-License-Identifier: Apache-2.0
//
// What the address spaces of one kernel share: the huge zero page, the deferred-split
// queue, and the host's buffers for mmu_gather.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kernel_model/mm/anon_vma.h"
#include "kernel_model/mm/huge_pieces.h"
#include "kernel_model/mm/khugepaged.h"
#include "kernel_model/mm/lru.h"
#include "kernel_model/mm/lru_batch.h"
#include "kernel_model/mm/mthp.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/page_locks.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/swap.h"
#include "kernel_model/types.h"
#include "sim/cost_centre.h"
#include "sim/task.h"

namespace faultline::kernel {

class Compaction;
class Kernel;
class Vmscan;
class Vranges;

// Huge pages of which a part is unmapped, oldest first; the shrinker splits them under
// reclaim.  From 6.12 on every huge page is queued, so that the shrinker can find those
// that hold little but zeros.  Stands for: deferred_split_huge_page(),
// free_transhuge_page() (mm/huge_memory.c, v4.15-6.18). Model: one queue in all, not one a
// node or memory cgroup.
class DeferredSplitQueue {
 public:
  // Nothing if it is queued already.
  void add(Pfn head);
  void remove(Pfn head);
  // folio_set_partially_mapped(): false if that is known already.  It is queued.
  bool set_partially_mapped(Pfn head);
  [[nodiscard]] bool partially_mapped(Pfn head) const {
    return entry_of_.at(head).partially_mapped;
  }
  // To the end of the queue.
  void requeue(Pfn head);
  [[nodiscard]] bool contains(Pfn head) const { return entry_of_.contains(head); }
  [[nodiscard]] std::size_t size() const { return by_age_.size(); }
  [[nodiscard]] const std::map<std::uint64_t, Pfn>& by_age() const { return by_age_; }

 private:
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, Pfn> by_age_;
  struct Entry {
    std::uint64_t age;
    bool partially_mapped = false;
  };
  std::map<Pfn, Entry> entry_of_;
};

class MmShared {
 public:
  explicit MmShared(Kernel& kernel);
  ~MmShared();
  [[nodiscard]] Vmscan& vmscan() { return *vmscan_; }
  [[nodiscard]] Compaction& compaction() { return *compaction_; }
  [[nodiscard]] Vranges& vranges() { return *vranges_; }  // of all address spaces

  // get_huge_zero_page(): allocates and clears it if there is none; no answer without
  // memory.
  [[nodiscard]] MaybePfn get_huge_zero_page(Task& task);
  [[nodiscard]] MaybePfn huge_zero_page() const { return huge_zero_; }
  // The shrinker's part: frees it if no mm refers to it.
  bool free_huge_zero_page(int cpu);
  void hold_huge_zero_page() { ++huge_zero_users_; }
  void put_huge_zero_page() { --huge_zero_users_; }

  [[nodiscard]] AnonVmaRef new_anon_vma() { return AnonVmaRef{++anon_vmas_}; }

  DeferredSplitQueue deferred_split;
  HugePieces huge_pieces;
  PageLocks page_locks;
  LruBatches lru;
  Lru lrus;
  Swap swap;
  FileTable files;
  Khugepaged khugepaged;
  // What each CPU owes to the IPIs of others' TLB flushes.
  std::vector<Duration> interrupts;
  std::set<Pfn> locked_pages;  // PG_locked, of huge pages that are being split
  MthpStats mthp_stats{};      // by order

  // Unmapped pages whose references go after the TLB flush.
  using Gathered = PageRefs;
  [[nodiscard]] std::unique_ptr<std::vector<Gathered>> take_gather_buffer();
  static constexpr unsigned kGatherBundle = 8;  // MMU_GATHER_BUNDLE
  const std::uint64_t gather_limit;  // references that one mmu_gather holds at most
  void give_gather_buffer(std::unique_ptr<std::vector<Gathered>> buffer);

  // The fault path's stack nodes below the place of the faulting instruction, to save the
  // lookups.
  struct FaultPath {
    CentreTree::Node* from = nullptr;
    CentreTree::Node* entry = nullptr;          // ArchCentres::user_fault_entry
    CentreTree::Node* do_page_fault = nullptr;  // the last of ArchCentres::fault_path
  };
  [[nodiscard]] const FaultPath& fault_path(Task& task) {
    if (fault_path_.from != task.where()) find_fault_path(task);
    return fault_path_;
  }

 private:
  void find_fault_path(Task& task);

  Kernel& kernel_;
  std::unique_ptr<Vmscan> vmscan_;
  std::unique_ptr<Compaction> compaction_;
  std::unique_ptr<Vranges> vranges_;
  std::uint64_t anon_vmas_ = 0;  // made so far
  MaybePfn huge_zero_;
  std::uint64_t huge_zero_users_ = 0;  // address spaces that have mapped it
  std::vector<std::unique_ptr<std::vector<Gathered>>> gather_buffers_;
  FaultPath fault_path_;
};

}  // namespace faultline::kernel
