// SPDX-License-Identifier: Apache-2.0
//
// Clears and copies as streams through a node's bandwidth.
#include "kernel_model/mm/clear_page.h"

#include "kernel_model/kernel.h"
#include "kernel_model/mm/data_caches.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kClearHugePage{"clear_huge_page", true};
constexpr Centre kFolioZeroUser{"folio_zero_user", true};
constexpr Centre kCopyPage{"copy_page", true};

void stream(Task& task, Kernel& kernel, const Centre& leaf, Pfn pfn, std::uint64_t bytes,
            std::uint64_t rate) {
  FAULTLINE_CHECK(task.preemptible());  // no page-table lock is held across a clear or copy
  if (bytes < kSmallClear) {
    task.charge(leaf, stream_time(bytes, rate));
    return;
  }
  Scope scope(task, leaf);
  kernel.bandwidth(kernel.phys().node_of(pfn)).transfer(task, bytes, rate);
}

}  // namespace

void stream_clear(Task& task, Kernel& kernel, Pfn pfn, std::uint64_t bytes) {
  stream(task, kernel, kernel.centres().clear_page, pfn, bytes,
         kernel.profile().costs.clear_rate);
}

void stream_copy(Task& task, Kernel& kernel, Pfn to, std::uint64_t bytes) {
  stream(task, kernel, kCopyPage, to, bytes, kernel.profile().costs.copy_rate);
}

void clear_pages(Task& task, Kernel& kernel, Pfn pfn, std::uint64_t bytes) {
  if (kernel.contents() != nullptr)
    kernel.contents()->cleared(pfn, bytes >> kernel.profile().geometry.page_shift);
  if (DataCaches* const caches = kernel.data_caches()) {
    const Scope scope(task, kernel.centres().clear_page);
    caches->clear_frames(task, pfn, bytes);
    return;
  }
  stream_clear(task, kernel, pfn, bytes);
}

void clear_huge_page(Task& task, Kernel& kernel, Pfn head) {
  Scope scope(task, kernel.version() >= 6011 ? kFolioZeroUser : kClearHugePage);
  clear_pages(task, kernel, head, kernel.profile().geometry.pmd_size());
}

void copy_pages(Task& task, Kernel& kernel, Pfn from, Pfn to, std::uint64_t bytes) {
  if (kernel.contents() != nullptr)
    kernel.contents()->copied(from, to, bytes >> kernel.profile().geometry.page_shift);
  if (DataCaches* const caches = kernel.data_caches()) {
    const Scope scope(task, kCopyPage);
    caches->copy_frames(task, to, from, bytes);
    return;
  }
  stream_copy(task, kernel, to, bytes);
}

}  // namespace faultline::kernel
