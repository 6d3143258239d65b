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
  while (!pages.hw_access(at, access)) {
    if (!task.is_earliest()) {
      task.sync();
      if (pages.hw_access(at, access)) break;
    }
    if (tlbs != nullptr) tlbs->fault(task, process, at);
    const Signal signal = do_user_page_fault(task, process, at, access);
    if (signal != Signal::kNone) return signal;
  }
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

}  // namespace

Signal user_touch(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  std::uint64_t stride, Access access) {
  PageTables& pages = process.mm().pages();
  const std::uint64_t pmd_size = pages.geometry().pmd_size();
  const VirtAddr end = start + length;
  VirtAddr at = start;
  while (at < end) {
    const Signal signal = user_access(task, process, at, access);
    if (signal != Signal::kNone) return signal;
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
