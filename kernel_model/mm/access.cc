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

namespace faultline::kernel {

Signal user_access(Task& task, Process& process, VirtAddr at, Access access) {
  PageTables& pages = process.mm().pages();
  bool assisted = false;
  while (!pages.hw_access(at, access, &assisted)) {
    if (!task.is_earliest()) {
      task.sync();
      if (pages.hw_access(at, access, &assisted)) break;
    }
    const Signal signal = do_user_page_fault(task, process, at, access);
    if (signal != Signal::kNone) return signal;
  }
  if (assisted) [[unlikely]]
    task.charge(pages.costs().dirty_assist);
  return Signal::kNone;
}

Signal user_touch(Task& task, Process& process, VirtAddr start, std::uint64_t length,
                  std::uint64_t stride, Access access, VirtAddr* failed) {
  PageTables& pages = process.mm().pages();
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
      const std::uint64_t beyond = pages.pmd_range(at).end - start;
      at = start + (beyond + stride - 1) / stride * stride;
    } else {
      at = at + stride;
    }
  }
  return Signal::kNone;
}

}  // namespace faultline::kernel
