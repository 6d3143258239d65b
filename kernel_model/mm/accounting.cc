// SPDX-License-Identifier: Apache-2.0
//
// Counting and promising memory: see accounting.h.
#include "kernel_model/mm/accounting.h"

#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {

namespace {

enum Overcommit : unsigned {
  kOvercommitGuess = 0,
  kOvercommitAlways = 1,
  kOvercommitNever = 2
};

std::uint64_t kb_to_pages(const Kernel& kernel, std::uint64_t kb) {
  return kb * 1024 >> kernel.profile().geometry.page_shift;
}

// sysctl_admin_reserve_kbytes as init_admin_reserve() sets it.
std::uint64_t admin_reserve(Kernel& kernel) {
  return std::min(kernel.phys().free_pages_total() / 32, kb_to_pages(kernel, 8 << 10));
}

// sysctl_user_reserve_kbytes as init_user_reserve() sets it.
std::uint64_t user_reserve(Kernel& kernel) {
  if (kernel.config().user_reserve_kbytes != 0)
    return kb_to_pages(kernel, kernel.config().user_reserve_kbytes);
  return std::min(kernel.phys().free_pages_total() / 32, kb_to_pages(kernel, 128 << 10));
}

// totalreserve_pages: what the watermarks keep from user space.
std::uint64_t total_reserve(Kernel& kernel) {
  std::uint64_t sum = 0;
  const int nodes = static_cast<int>(kernel.profile().nodes.size());
  for (int node = 0; node < nodes; ++node) sum += kernel.phys().watermarks(node).high;
  return sum;
}

// Mode 0 to 5.1: is there as much free memory now, with the page cache and free swap
// counted as free?  Model: no slab; the page cache is what processes have mapped of files.
bool free_now(Kernel& kernel, std::uint64_t pages) {
  std::uint64_t free =
      kernel.phys().free_pages_total() + kernel.mm_shared().swap.free_pages();
  for (const auto& process : kernel.processes()) free += process->mm().rss_file;
  const std::uint64_t reserved = total_reserve(kernel) + admin_reserve(kernel);
  return free > reserved && free - reserved > pages;
}

bool below_limit(Mm& mm) {
  Kernel& kernel = mm.kernel();
  const std::uint64_t limit = vm_commit_limit(kernel);
  const std::uint64_t reserved =
      admin_reserve(kernel) + std::min(mm.total_vm / 32, user_reserve(kernel));
  return kernel.committed_pages + reserved < limit;
}

}  // namespace

void vm_stat_account(Mm& mm, std::uint64_t vm_flags, std::int64_t pages) {
  const auto add = [pages](std::uint64_t& counter) {
    counter += static_cast<std::uint64_t>(pages);
  };
  add(mm.total_vm);
  mm.hiwater_vm = std::max(mm.hiwater_vm, mm.total_vm);
  const std::uint64_t kind = vm_flags & (VM_EXEC | VM_WRITE | VM_SHARED | VM_GROWSDOWN);
  if ((kind & ~std::uint64_t{VM_SHARED}) == VM_EXEC)
    add(mm.exec_vm);
  else if ((kind & VM_GROWSDOWN) != 0)
    add(mm.stack_vm);
  else if ((kind & ~std::uint64_t{VM_EXEC}) == VM_WRITE)
    add(mm.data_vm);
}

bool accountable_mapping(std::uint64_t vm_flags) {
  return (vm_flags & (VM_NORESERVE | VM_SHARED | VM_WRITE | VM_HUGETLB)) == VM_WRITE;
}

std::uint64_t vm_commit_limit(Kernel& kernel) {
  return kernel.phys().total_pages() * kernel.config().overcommit_ratio / 100;
}

bool vm_enough_memory(Mm& mm, std::uint64_t pages) {
  Kernel& kernel = mm.kernel();
  const KernelConfig& config = kernel.config();
  kernel.committed_pages += pages;
  bool enough = true;
  if (config.overcommit_memory == kOvercommitNever)
    enough = below_limit(mm);
  else if (config.overcommit_memory == kOvercommitGuess)
    enough =
        config.overcommit == OvercommitHeuristic::kTotalRam
            ? pages <= kernel.phys().total_pages() + kernel.mm_shared().swap.total_pages()
            : free_now(kernel, pages);
  if (!enough) kernel.committed_pages -= pages;
  return enough;
}

void vm_unacct_memory(Kernel& kernel, std::uint64_t pages) {
  FAULTLINE_CHECK_LE(pages, kernel.committed_pages);
  kernel.committed_pages -= pages;
}

}  // namespace faultline::kernel
