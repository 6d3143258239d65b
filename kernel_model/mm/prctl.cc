// SPDX-License-Identifier: Apache-2.0
//
// The parts of prctl(2) that concern memory: names of anonymous mappings, and no huge pages
// for this process.
//
// Stands for: prctl_set_vma(), madvise_set_anon_name() (mm/madvise.c, v5.17-6.18),
// PR_SET_THP_DISABLE (kernel/sys.c, v3.15-6.18).
#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

inline constexpr std::size_t kAnonVmaNameMaxLen = 80;  // with the final 0

// is_valid_name_char(): printable, and nothing that would confuse a reader of smaps.
bool valid_name(std::string_view name) {
  if (name.size() >= kAnonVmaNameMaxLen) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c > 0x1f && c < 0x7f &&
           std::string_view("\\`$[]").find(c) == std::string_view::npos;
  });
}

Errno name_part(Task& task, Mm& mm, Vma*& vma, Range part, std::string_view name) {
  if (!vma->anonymous) return Errno::kEBADF;
  if (vma->anon_name == name) return Errno::kOk;
  VmaSpec spec = VmaSpec::of(*vma, part, mm.kernel().profile().geometry.page_shift);
  spec.anon_name = name;
  Vma* const changed = vma_modify(task, mm, *vma, spec);
  if (changed == nullptr) return Errno::kEAGAIN;
  vma = changed;
  return Errno::kOk;
}

// madvise_walk_vmas(), as madvise(2) does it.
Errno name_range(Task& task, Mm& mm, Range range, std::string_view name) {
  Errno hole = Errno::kOk;
  VirtAddr at = range.start;
  for (Vma* vma = mm.vmas.find(at);; vma = vma->next()) {
    if (vma == nullptr) return Errno::kENOMEM;
    if (at < vma->start) {
      hole = Errno::kENOMEM;
      at = vma->start;
      if (at >= range.end) return hole;
    }
    const Errno error = name_part(task, mm, vma, {at, std::min(vma->end, range.end)}, name);
    if (error != Errno::kOk) return error;
    at = vma->end;
    if (at >= range.end) return hole;
  }
}

}  // namespace

SysStatus sys_prctl_set_vma_anon_name(Task& task, Process& process, VirtAddr start,
                                      std::uint64_t length, std::string_view name) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysPrctl);
  if (kernel.version() < 5017 || !valid_name(name)) return Errno::kEINVAL;
  if (!page_aligned(mm, start)) return Errno::kEINVAL;
  const std::uint64_t rounded = page_align(mm, length);
  if (length != 0 && rounded == 0) return Errno::kEINVAL;
  const Range range{start, start + rounded};
  if (range.end < range.start) return Errno::kEINVAL;
  if (range.empty()) return Errno::kOk;
  mm.mmap_write_lock(task);
  task.charge(kernel.profile().costs.madvise_base);
  const Errno error = name_range(task, mm, range, name);
  mm.mmap_write_unlock(task);
  return error;
}

SysStatus sys_prctl_set_thp_disable(Task& task, Process& process, bool disable,
                                    ThpDisable flags) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysPrctl);
  if (kernel.version() < 3015) return Errno::kEINVAL;
  const bool except_advised = flags == ThpDisable::kExceptAdvised;
  if (flags != ThpDisable::kCompletely &&
      (kernel.version() < 6018 || !except_advised || !disable))
    return Errno::kEINVAL;
  mm.mmap_write_lock(task);
  mm.thp_disabled = disable;
  mm.thp_except_advised = except_advised;
  mm.mmap_write_unlock(task);
  return Errno::kOk;
}

}  // namespace faultline::kernel
