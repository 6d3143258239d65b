// SPDX-License-Identifier: Apache-2.0
//
// The kernel thread that looks for ranges of base pages that could be huge pages, and
// collapses them.
//
// It wakes every scan_sleep_millisecs, looks at pages_to_scan pages' worth of PMD ranges
// (by default eight, whatever their size) from where it left off, and sleeps again.  It
// never waits for mmap_lock to look, but a collapse holds it for write.
//
// Stands for: khugepaged(), khugepaged_do_scan(), khugepaged_scan_mm_slot()
// (mm/khugepaged.c, v3.9-6.18).  Model: no file or shmem pages; its niceness plays no part.
// Other programs keep the real thread busy all the time, so when the first of ours enters
// its list it has just gone to sleep.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "kernel_model/mm/collapse.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;

// /sys/kernel/mm/transparent_hugepage/khugepaged: what can be written there.
struct KhugepagedKnobs {
  std::uint64_t scan_sleep_millisecs = 0, alloc_sleep_millisecs = 0, pages_to_scan = 0;
  std::uint64_t max_ptes_none = 0, max_ptes_swap = 0, max_ptes_shared = 0;
  bool defrag = true;
};

// As configured, or as khugepaged_init() derives it from the machine's huge page.
[[nodiscard]] KhugepagedKnobs khugepaged_knobs(const Kernel& kernel);

class Khugepaged {
 public:
  explicit Khugepaged(Kernel& kernel);
  ~Khugepaged();

  // hugepage_flags_enabled(), and the configuration lets it.
  [[nodiscard]] static bool runs(const Kernel& kernel);

  // __khugepaged_enter(): `mm` is scanned from now on.  Once per mm.
  void enter(Task& task, Mm& mm);
  // __khugepaged_exit(): the mm's last user goes.
  void exit(Task& task, Mm& mm);
  // mmdrop(): ends an mm that has exited, at once or when its scan has noticed.
  void drop(std::unique_ptr<Mm> mm);

  // The kernel ends: its thread has been stopped.
  void clear();

  [[nodiscard]] const KhugepagedKnobs& knobs() const { return knobs_; }
  // Writes all knobs; a sleeping thread wakes, as by a write to a *_sleep_millisecs file.
  void store(Task& task, const KhugepagedKnobs& knobs);
  [[nodiscard]] std::uint64_t pages_collapsed() const { return pages_collapsed_; }
  [[nodiscard]] std::uint64_t full_scans() const { return full_scans_; }

 private:
  struct Slot {
    Mm* mm;
    std::unique_ptr<Mm> dropped;  // goes with the slot
  };
  // What one visit of an mm has done.
  struct Visit {
    std::uint64_t pages;  // budget
    std::uint64_t progress = 0;
    ScanResult result = ScanResult::kSucceed;
    bool locked = true;    // mmap_lock is still held
    bool all_seen = true;  // no VMA is left
  };

  void run(Task& task);
  void wait_work(Task& task);
  void pause(Task& task, std::uint64_t millisecs);
  void do_scan(Task& task);
  void scan_mm_slot(Task& task, Visit& visit);
  void scan_vmas(Task& task, Mm& mm, Visit& visit);
  bool scan_range(Task& task, Mm& mm, VirtAddr end, Visit& visit);
  bool skip_empty(Task& task, Mm& mm, VirtAddr end, Visit& visit);
  void next_slot(bool drop);

  Kernel& kernel_;
  KhugepagedKnobs knobs_;
  Task* thread_ = nullptr;  // made when the first mm enters
  bool idle_ = false;       // has nothing to scan
  std::list<Slot> slots_;   // khugepaged_scan.mm_head
  bool in_slot_ = false;    // khugepaged_scan.mm_slot, .address
  std::list<Slot>::iterator slot_;
  VirtAddr address_;
  std::uint64_t pages_collapsed_ = 0, full_scans_ = 0;
};

}  // namespace faultline::kernel
