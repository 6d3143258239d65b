// SPDX-License-Identifier: Apache-2.0
//
// Clearing memory: where a fault's time goes.
//
// A huge page streams through its node's memory bandwidth, which all who stream share, and
// gives up the CPU at slice ends as the kernel's cond_resched() does.  A base page is
// charged at the core's own rate.  Model: clears below kSmallClear bytes neither feel nor
// cause bandwidth sharing.
//
// Stands for: clear_user_highpage(), clear_huge_page() and its successor folio_zero_user()
// (mm/memory.c, v4.15-6.18).
#pragma once

#include <cstdint>

#include "arch_profiles/costs.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;

inline constexpr std::uint64_t kSmallClear = 256 << 10;

// bytes / rate, rounded down; for sizes up to a few GB.
[[nodiscard]] constexpr Duration stream_time(std::uint64_t bytes,
                                             std::uint64_t bytes_per_second) {
  // Split so that bytes * 1e12 can't overflow.
  const std::uint64_t whole = bytes / bytes_per_second;
  const std::uint64_t rest = bytes % bytes_per_second;
  const std::uint64_t ns = rest * 1'000'000'000 / bytes_per_second;
  const std::uint64_t below = rest * 1'000'000'000 % bytes_per_second;
  return Duration::ps(static_cast<std::int64_t>(whole * 1'000'000'000'000 + ns * 1'000 +
                                                below * 1'000 / bytes_per_second));
}
[[nodiscard]] inline Duration clear_time(const arch::Costs& costs, std::uint64_t bytes) {
  return stream_time(bytes, costs.clear_rate);
}

// Clears pages of the node that holds `pfn`, at the leaf clear_page below where the task
// stands.
void clear_pages(Task& task, Kernel& kernel, Pfn pfn, std::uint64_t bytes);
// As clear_huge_page() (folio_zero_user() from 6.11).
void clear_huge_page(Task& task, Kernel& kernel, Pfn head);
// The time alone of clearing or copying `bytes` on the node that holds `pfn`; contents are
// the caller's.
void stream_clear(Task& task, Kernel& kernel, Pfn pfn, std::uint64_t bytes);
void stream_copy(Task& task, Kernel& kernel, Pfn to, std::uint64_t bytes);
// Copies a page or a run of pages.
void copy_pages(Task& task, Kernel& kernel, Pfn from, Pfn to, std::uint64_t bytes);

}  // namespace faultline::kernel
