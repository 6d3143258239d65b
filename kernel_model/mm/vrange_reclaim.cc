// SPDX-License-Identifier: Apache-2.0
//
// Which volatile ranges go when memory is short: kswapd's own pass (v7), a shrinker (v9),
// the hook in shrink_list() (v10).
//
// Stands for: discard_vrange_pages(), get_victim_vrange() (v7), shrink_vrange() (v9, v10),
// mm/vrange.c.  Model: the oldest range's mmap_sem is tried for while the list is locked,
// which is what keeps its mm from going away; every allocation may do I/O, so nobody is
// turned away for want of __GFP_IO.
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/proc/vmstat.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDiscardVrangePages{"discard_vrange_pages", true};
constexpr Centre kShrinkVrange{"shrink_vrange", true};
constexpr unsigned kDefPriority = 12;
constexpr std::uint64_t kMaxScan = std::uint64_t{4} << 20;  // VRANGE_SCAN_THRESHOLD
constexpr unsigned kMaxAgain = 10;                          // consecutive EAGAIN

}  // namespace

Vranges::Victim Vranges::take_victim(Task& task, Takes how) {
  Victim victim;
  lru_lock_.lock(task);
  if (Vrange* range = oldest_) {
    Mm& mm = range->root->mm();
    victim.start = range->start;
    victim.range = {range->scan_from, range->end};
    victim.busy = mm.exiting || !mm.mmap_lock().down_read_trylock(task);
    unlink(*range);
    if (how == Takes::kToHead || victim.busy) link(*range, true);
    if (!victim.busy) victim.mm = &mm;
  }
  lru_lock_.unlock(task);
  Vmstat& vmstat = kernel_.vmstat();
  vmstat.vrange_victims += victim.mm != nullptr ? 1 : 0;
  vmstat.vrange_victims_busy += victim.busy ? 1 : 0;
  return victim;
}

std::uint64_t Vranges::discard_vrange_pages(Task& task, int node, std::uint64_t pages,
                                            ScanControl& sc) {
  const Scope scope(task, kDiscardVrangePages);
  std::uint64_t freed = 0;
  for (std::uint64_t left = lru_length_; left > 0 && freed < pages; --left) {
    const Victim victim = take_victim(task, Takes::kToHead);
    if (victim.mm == nullptr) {
      if (!victim.busy) break;
      continue;
    }
    freed += discard_range(task, *victim.mm, victim.range, node, sc);
    victim.mm->mmap_lock().up_read(task);
  }
  return freed;
}

std::uint64_t Vranges::shrink_bytes(Task& task, std::uint64_t bytes, ScanControl& sc) {
  const Scope scope(task, kShrinkVrange);
  std::uint64_t freed = 0, scanned = 0;
  for (std::uint64_t left = lru_length_; left > 0 && scanned < bytes; --left) {
    const Victim victim = take_victim(task, Takes::kToHead);
    if (victim.mm == nullptr) {
      if (!victim.busy) break;
      continue;
    }
    freed += discard_range(task, *victim.mm, victim.range, -1, sc);
    scanned += victim.range.bytes();
    victim.mm->mmap_lock().up_read(task);
  }
  return freed;
}

// The range was looked at up to `to`: what is left of it comes next; all of it: it is off
// the list until it is marked anew.
void Vranges::put_scanned(Task& task, const Victim& victim, VirtAddr to) {
  VrangeRoot& root = *victim.mm->vranges();
  root.lock().lock(task);
  Vrange* range = root.find(victim.start);
  if (range != nullptr && range->start == victim.start && !range->on_lru) {
    const bool whole = to >= range->end;
    range->scan_from = whole ? range->start : to;
    if (!whole) lru_add_tail(task, *range);
  }
  root.lock().unlock(task);
}

// File pages are taken first as long as that is easy.
std::uint64_t Vranges::shrink_vrange(Task& task, bool file, ScanControl& sc) {
  if (version_ != VrangeVersion::k10) return 0;
  if (file && sc.priority >= kDefPriority - 2) return 0;
  const Scope scope(task, kShrinkVrange);
  std::uint64_t freed = 0, scanned = 0;
  for (unsigned again = 0;
       scanned < kMaxScan && freed < sc.nr_to_reclaim && again < kMaxAgain;) {
    const Victim victim = take_victim(task, Takes::kOff);
    if (victim.mm == nullptr) {
      if (!victim.busy) break;
      ++again;
      continue;
    }
    again = 0;
    const std::uint64_t bytes = std::min(victim.range.bytes(), kMaxScan - scanned);
    const VirtAddr to = victim.range.start + bytes;
    freed += discard_range(task, *victim.mm, {victim.range.start, to}, -1, sc);
    scanned += bytes;
    put_scanned(task, victim, to);
    victim.mm->mmap_lock().up_read(task);
  }
  return freed;
}

}  // namespace faultline::kernel
