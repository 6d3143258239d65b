// SPDX-License-Identifier: Apache-2.0
//
// What user code does to memory: an access goes through if the page tables allow it, else
// it faults until they do.
//
// Model: a task that runs ahead may use a page that another task has unmapped at an earlier
// virtual time; only an access that would fault synchronises first.
#include <algorithm>

#include "kernel_model/mm/fault.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/syscall.h"
#include "kernel_model/tlb/tlb.h"

namespace faultline::kernel {

Signal user_access(Task& task, Process& process, VirtAddr at, Access access) {
  PageTables& pages = process.mm().pages();
  Tlbs* const tlbs = process.kernel().tlbs();
  bool assisted = false;
  while (!pages.hw_access(at, access, &assisted)) {
    if (!task.is_earliest()) {
      task.sync();
      if (pages.hw_access(at, access, &assisted)) break;
    }
    if (tlbs != nullptr) tlbs->fault(task, process, at);
    const Signal signal = do_user_page_fault(task, process, at, access);
    if (signal != Signal::kNone) return signal;
  }
  if (assisted) [[unlikely]]
    task.charge(pages.costs().dirty_assist);
  if (tlbs != nullptr) tlbs->access(task, process, at, access);
  return Signal::kNone;
}

namespace {

// How far a huge page's translation reaches that an access to `at` has just used: further
// accesses there change nothing.
VirtAddr end_of_translation(Task& task, Process& process, VirtAddr at) {
  const VirtAddr end = process.mm().pages().pmd_range(at).end;
  Tlbs* const tlbs = process.kernel().tlbs();
  if (tlbs == nullptr) return end;
  const Range held = tlbs->held(task.cpu(), process, at);
  return held.empty() ? end : std::min(end, held.end);
}

// The first entry of [i, stop) whose bits aren't those of `like`; differences are gathered
// over some entries at a time.
std::uint64_t first_unlike(const Pte* entry, std::uint64_t i, std::uint64_t stop,
                           Pte like) {
  constexpr std::uint64_t kStride = 16;
  for (; i + kStride <= stop; i += kStride) {
    std::uint64_t differ = 0;
    for (std::uint64_t k = 0; k < kStride; ++k)
      differ |= entry[i + k].differs_in_bits(like);
    if (differ != 0) break;
  }
  while (i < stop && entry[i].same_bits(like)) ++i;
  return i;
}

}  // namespace

// Neighbouring pages have equal entries most of the time: what hardware does to the first
// of them it does to all.
AccessRun user_access_run(Process& process, VirtAddr start, std::uint64_t length,
                          Access access) {
  PageTables& pages = process.mm().pages();
  const VirtAddr end = start + length;
  const std::uint64_t page = pages.geometry().page_size();
  AccessRun run;
  VirtAddr at = start;
  while (at < end) {
    const Pte before = pages.tree().leaf_at(at);
    bool assisted = false;
    if (!pages.hw_access(at, access, &assisted)) break;
    run.assisted += assisted ? 1 : 0;
    Table* const table = pages.tree().find_pte_table(at);
    if (table == nullptr) {
      at = pages.pmd_range(at).end;
      continue;
    }
    const LevelShape& shape = pages.tree().shape(table->level);
    const VirtAddr page_start{at.v & ~(page - 1)};
    const std::uint64_t first = shape.index(at);
    const std::uint64_t stop =
        std::min(first + ((end - page_start + page - 1) >> shape.shift), shape.entries());
    const Pte after = table->entry[first];
    std::uint64_t i = first_unlike(table->entry, first + 1, stop, after);
    while (i < stop && table->entry[i].same_bits(before)) {
      for (; i < stop && table->entry[i].same_bits(before); ++i) {
        table->entry[i] = table->entry[i].with_bits_of(after);
        run.assisted += assisted ? 1 : 0;
      }
      i = first_unlike(table->entry, i, stop, after);
    }
    at = page_start + ((i - first) << shape.shift);
  }
  run.bytes = std::min(at, end) - start;
  return run;
}

std::uint64_t user_pass(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                        Access access) {
  if (process.kernel().tlbs() != nullptr) return 0;
  const AccessRun run = user_access_run(process, start, length, access);
  if (run.assisted != 0)
    task.charge(process.mm().pages().costs().dirty_assist *
                static_cast<std::int64_t>(run.assisted));
  return run.bytes;
}

namespace {

constexpr std::uint64_t kLongTouch = 8;  // pages

// user_touch of every page: what is mapped is passed in runs.
Signal touch_pages(Task& task, Process& process, VirtAddr at, VirtAddr end, Access access,
                   VirtAddr* failed) {
  PageTables& pages = process.mm().pages();
  const std::uint64_t page = pages.geometry().page_size();
  while (at < end) {
    const std::uint64_t passed = user_pass(task, process, at, end - at, access);
    at = at + (passed + page - 1) / page * page;
    if (at >= end) break;
    if (access == Access::kWrite && end - at >= kLongTouch * page) {
      task.sync();
      const VirtAddr here{at.v & ~(page - 1)}, last{(end.v + page - 1) & ~(page - 1)};
      const std::uint64_t done = anon_fault_run(task, process, here, last);
      at = here + done * page;
      if (done != 0) continue;
    }
    const Signal signal = user_access(task, process, at, access);
    if (signal != Signal::kNone) {
      if (failed != nullptr) *failed = at;
      return signal;
    }
    at = at + page;
  }
  return Signal::kNone;
}

}  // namespace

Signal user_touch(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  std::uint64_t stride, Access access, VirtAddr* failed) {
  PageTables& pages = process.mm().pages();
  if (length == 0) return Signal::kNone;
  // A TLB wants to hear of each page.
  if (stride == pages.geometry().page_size() && process.kernel().tlbs() == nullptr) {
    // The last access may lie on an earlier page than the end of the range.
    const VirtAddr last = start + (length - 1) / stride * stride;
    return touch_pages(task, process, start, last + 1, access, failed);
  }
  const std::uint64_t pmd_size = pages.geometry().pmd_size();
  const VirtAddr end = start + length;
  VirtAddr at = start;
  while (at < end) {
    const Signal signal = user_access(task, process, at, access);
    if (signal != Signal::kNone) {
      if (failed != nullptr) *failed = at;
      return signal;
    }
    const Table* pmd = pages.tree().find_pmd_table(at);
    if (stride < pmd_size && pmd != nullptr && pages.tree().get(*pmd, at).is_leaf()) {
      // The rest of the huge page is mapped alike: on to the first access beyond it.
      const std::uint64_t beyond = end_of_translation(task, process, at) - start;
      at = start + (beyond + stride - 1) / stride * stride;
    } else {
      at = at + stride;
    }
  }
  return Signal::kNone;
}

}  // namespace faultline::kernel
