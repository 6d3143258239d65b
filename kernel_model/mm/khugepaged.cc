// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/khugepaged.h"

#include <algorithm>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"

namespace faultline::kernel {
namespace {

constexpr Centre kKhugepaged{"khugepaged", true};
constexpr Centre kScanMmSlot{"khugepaged_scan_mm_slot", true};

// Its exit waits for an end of the scan; 6.8 skips one that has no use for huge pages, too
// (hpage_collapse_test_exit_or_disable()).
bool test_exit_or_disable(const Mm& mm) {
  return mm.exiting ||
         (mm.thp_disabled && !mm.thp_except_advised && mm.kernel().version() >= 6008);
}

}  // namespace

KhugepagedKnobs khugepaged_knobs(const Kernel& kernel) {
  const KernelConfig& config = kernel.config();
  const std::uint64_t nr = kernel.profile().geometry.pages_per_pmd();
  return {.scan_sleep_millisecs = config.khugepaged_scan_sleep,
          .alloc_sleep_millisecs = config.khugepaged_alloc_sleep,
          .pages_to_scan = config.khugepaged_pages_to_scan.value_or(8 * nr),
          .max_ptes_none = config.khugepaged_max_ptes_none.value_or(nr - 1),
          .max_ptes_swap = config.khugepaged_max_ptes_swap.value_or(nr / 8),
          .max_ptes_shared = config.khugepaged_max_ptes_shared.value_or(nr / 2),
          .defrag = config.khugepaged_defrag};
}

Khugepaged::Khugepaged(Kernel& kernel)
    : kernel_(kernel), knobs_(khugepaged_knobs(kernel)) {}

Khugepaged::~Khugepaged() = default;

bool Khugepaged::runs(const Kernel& kernel) {
  return kernel.config().khugepaged_run && kernel.profile().geometry.has_thp &&
         kernel.config().thp_enabled != ThpEnabled::kNever;
}

void Khugepaged::enter(Task& task, Mm& mm) {
  task.sync();
  slots_.push_back({&mm, nullptr});
  if (thread_ == nullptr) {
    thread_ = &kernel_.engine().spawn(
        "khugepaged", [this](Task& self) { run(self); }, task.now());
    kernel_.engine().set_daemon(*thread_);
  } else if (idle_) {
    idle_ = false;
    kernel_.engine().wake(*thread_, task.now());
  }
}

// One that is being scanned stays on the list until the scan notices.  Taking mmap_lock
// makes sure that nobody is still at its page tables.
void Khugepaged::exit(Task& task, Mm& mm) {
  task.sync();
  const auto found = std::ranges::find(slots_, &mm, &Slot::mm);
  if (found == slots_.end()) return;
  if (in_slot_ && slot_ == found) {
    mm.mmap_write_lock(task);
    mm.mmap_write_unlock(task);
  } else {
    slots_.erase(found);
  }
}

void Khugepaged::drop(std::unique_ptr<Mm> mm) {
  const auto found = std::ranges::find(slots_, mm.get(), &Slot::mm);
  if (found != slots_.end()) found->dropped = std::move(mm);
}

void Khugepaged::clear() {
  slots_.clear();
}

void Khugepaged::store(Task& task, const KhugepagedKnobs& knobs) {
  task.sync();
  knobs_ = knobs;
  if (thread_ != nullptr && !idle_) kernel_.engine().wake(*thread_, task.now());
}

void Khugepaged::run(Task& task) {
  const Scope scope(task, kKhugepaged);
  for (;;) {
    wait_work(task);
    do_scan(task);
  }
}

// khugepaged_wait_work()
void Khugepaged::wait_work(Task& task) {
  task.sync();
  while (slots_.empty()) {
    idle_ = true;
    task.block(TaskState::kSleeping);
    task.sync();
  }
  if (knobs_.scan_sleep_millisecs > 0) pause(task, knobs_.scan_sleep_millisecs);
}

void Khugepaged::pause(Task& task, std::uint64_t millisecs) {
  task.sleep(Duration::ms(static_cast<std::int64_t>(millisecs)));
}

// khugepaged_do_scan(): until the budget is spent or every mm has been looked at.
void Khugepaged::do_scan(Task& task) {
  task.sync();
  kernel_.mm_shared().lru.lru_add_drain_all();
  const std::uint64_t pages = knobs_.pages_to_scan;
  std::uint64_t progress = 0;
  unsigned passes_through_head = 0;
  bool may_wait = true;
  while (progress < pages) {
    if (!in_slot_) ++passes_through_head;
    if (slots_.empty() || passes_through_head >= 2) return;
    Visit visit{.pages = pages - progress};
    scan_mm_slot(task, visit);
    progress += visit.progress;
    if (visit.result != ScanResult::kAllocHugePageFail || progress >= pages) continue;
    if (!may_wait) return;
    may_wait = false;
    pause(task, knobs_.alloc_sleep_millisecs);
  }
}

void Khugepaged::scan_mm_slot(Task& task, Visit& visit) {
  const Scope scope(task, kScanMmSlot);
  if (!in_slot_) {
    in_slot_ = true;
    slot_ = slots_.begin();
    address_ = {};
  }
  Mm& mm = *slot_->mm;
  // Contended: the next mm's turn.
  if (mm.mmap_lock().down_read_trylock(task)) {
    ++visit.progress;
    if (!test_exit_or_disable(mm)) scan_vmas(task, mm, visit);
    if (visit.locked) mm.mmap_read_unlock(task);
  }
  task.sync();
  if (mm.exiting || visit.all_seen) next_slot(mm.exiting);
}

void Khugepaged::scan_vmas(Task& task, Mm& mm, Visit& visit) {
  const std::uint64_t size = mm.pages().geometry().pmd_size();
  for (const Vma* vma = mm.find_vma(address_); vma != nullptr; vma = vma->next()) {
    task.charge(mm.pages().costs().vma_lookup);
    const VirtAddr start{(vma->start.v + size - 1) & ~(size - 1)};
    const VirtAddr end{vma->end.v & ~(size - 1)};
    if (!collapse_allowed(mm, *vma) || !thp_allowed(kernel_, mm, *vma) || address_ > end) {
      ++visit.progress;
      continue;
    }
    address_ = std::max(address_, start);
    visit.all_seen = scan_range(task, mm, end, visit);
    if (!visit.all_seen) return;
  }
}

// False if the visit ends in the middle: the budget is spent, or a collapse has given
// mmap_lock up.
bool Khugepaged::scan_range(Task& task, Mm& mm, VirtAddr end, Visit& visit) {
  const CollapseControl control{
      .max_ptes_none = knobs_.max_ptes_none,
      .max_ptes_swap = knobs_.max_ptes_swap,
      .max_ptes_shared = knobs_.max_ptes_shared,
      .reclaim = knobs_.defrag ? GfpReclaim::kDirect : GfpReclaim::kNone};
  const arch::Geometry& geometry = mm.pages().geometry();
  while (address_ < end) {
    if (skip_empty(task, mm, end, visit)) {
      if (visit.progress >= visit.pages) return false;
      continue;
    }
    task.charge(mm.pages().costs().pmd_walk);
    visit.result = collapse_scan_pmd(task, mm, address_, control, visit.locked);
    if (visit.result == ScanResult::kSucceed) ++pages_collapsed_;
    address_ = address_ + geometry.pmd_size();
    visit.progress += geometry.pages_per_pmd();
    if (!visit.locked || visit.progress >= visit.pages) return false;
  }
  return true;
}

// Ranges without any page cost the budget and the thread what looking at each would, the
// host nothing.  The budget is looked at after a range, so one is always affordable.
bool Khugepaged::skip_empty(Task& task, Mm& mm, VirtAddr end, Visit& visit) {
  PageTables& pages = mm.pages();
  const std::uint64_t size = pages.geometry().pmd_size();
  const std::uint64_t nr = pages.geometry().pages_per_pmd();
  task.sync();
  const VirtAddr next = pages.tree().next_in_use(address_, end, pages.tree().pmd_level());
  const std::uint64_t empty = (next - address_) / size;
  if (empty == 0) return false;
  const std::uint64_t left = visit.pages - std::min(visit.progress, visit.pages);
  const std::uint64_t count =
      std::min(empty, std::max<std::uint64_t>((left + nr - 1) / nr, 1));
  task.charge(pages.costs().pmd_walk * static_cast<std::int64_t>(count));
  address_ = address_ + count * size;
  visit.progress += count * nr;
  visit.result = ScanResult::kPmdNull;
  return true;
}

void Khugepaged::next_slot(bool drop) {
  address_ = {};
  const auto done = slot_++;
  if (drop) slots_.erase(done);
  if (slot_ != slots_.end()) return;
  in_slot_ = false;
  ++full_scans_;
}

}  // namespace faultline::kernel
