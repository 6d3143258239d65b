// SPDX-License-Identifier: Apache-2.0
//
// Clears and copies as streams through a node's bandwidth.
#include "kernel_model/mm/clear_page.h"

#include "kernel_model/kernel.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kClearHugePage{"clear_huge_page", true};
constexpr Centre kFolioZeroUser{"folio_zero_user", true};
constexpr Centre kCopyPage{"copy_page", true};

}  // namespace

void clear_pages(Task& task, Kernel& kernel, Pfn pfn, std::uint64_t bytes) {
  const arch::Costs& costs = kernel.profile().costs;
  const Centre& leaf = kernel.centres().clear_page;
  if (kernel.contents() != nullptr)
    kernel.contents()->cleared(pfn, bytes >> kernel.profile().geometry.page_shift);
  if (bytes < kSmallClear) {
    task.charge(leaf, clear_time(costs, bytes));
    return;
  }
  Scope scope(task, leaf);
  kernel.bandwidth(kernel.phys().node_of(pfn)).transfer(task, bytes, costs.clear_rate);
}

void clear_huge_page(Task& task, Kernel& kernel, Pfn head) {
  Scope scope(task, kernel.version() >= 6011 ? kFolioZeroUser : kClearHugePage);
  clear_pages(task, kernel, head, kernel.profile().geometry.pmd_size());
}

void copy_pages(Task& task, Kernel& kernel, Pfn from, Pfn to, std::uint64_t bytes) {
  const arch::Costs& costs = kernel.profile().costs;
  if (kernel.contents() != nullptr)
    kernel.contents()->copied(from, to, bytes >> kernel.profile().geometry.page_shift);
  if (bytes < kSmallClear) {
    task.charge(kCopyPage, stream_time(bytes, costs.copy_rate));
    return;
  }
  Scope scope(task, kCopyPage);
  kernel.bandwidth(kernel.phys().node_of(to)).transfer(task, bytes, costs.copy_rate);
}

}  // namespace faultline::kernel
