// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/status.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel_model/mm/mm.h"

namespace faultline::kernel {
namespace {

// mm->end_code - mm->start_code: the program's own executable mapping.
std::uint64_t program_text(const Mm& mm) {
  for (const Vma& vma : mm.vmas)
    if ((vma.vm_flags & VM_EXEC) && vma.name.starts_with('/')) return vma.bytes();
  return 0;
}

}  // namespace

StatusMemory task_mem(Mm& mm) {
  const unsigned shift = mm.kernel().profile().geometry.page_shift;
  RssStat& rss = mm.pages().rss_stat();
  StatusMemory s;
  s.vm_peak = std::max(mm.hiwater_vm, mm.total_vm) << shift;
  s.vm_size = mm.total_vm << shift;
  s.vm_lck = mm.locked_vm << shift;
  s.rss_anon = rss.shown(RssKind::kAnon) << shift;
  s.rss_file = rss.shown(RssKind::kFile) << shift;
  s.rss_shmem = rss.shown(RssKind::kShmem) << shift;
  s.vm_rss = s.rss_anon + s.rss_file + s.rss_shmem;
  s.vm_hwm = rss.hiwater_shown() << shift;
  s.vm_swap = mm.swap_ents << shift;
  s.vm_data = mm.data_vm << shift;
  s.vm_stk = mm.stack_vm << shift;
  s.vm_exe = std::min(program_text(mm), mm.exec_vm << shift);
  s.vm_lib = (mm.exec_vm << shift) - s.vm_exe;
  s.vm_pte = mm.pages().pgtables_bytes();
  s.hugetlb_pages = mm.hugetlb_bytes;
  return s;
}

std::string status_text(Mm& mm) {
  const StatusMemory s = task_mem(mm);
  const unsigned version = mm.kernel().version();
  std::string out;
  const auto line = [&](const char* name, std::uint64_t bytes) {
    out += fmt::format("{}:\t{:>8} kB\n", name, bytes >> 10);
  };
  line("VmPeak", s.vm_peak);
  line("VmSize", s.vm_size);
  line("VmLck", s.vm_lck);
  line("VmPin", s.vm_pin);
  line("VmHWM", s.vm_hwm);
  line("VmRSS", s.vm_rss);
  if (version >= 4'005) {
    line("RssAnon", s.rss_anon);
    line("RssFile", s.rss_file);
    line("RssShmem", s.rss_shmem);
  }
  line("VmData", s.vm_data);
  line("VmStk", s.vm_stk);
  line("VmExe", s.vm_exe);
  line("VmLib", s.vm_lib);
  line("VmPTE", s.vm_pte);
  line("VmSwap", s.vm_swap);
  if (version >= 4'004) line("HugetlbPages", s.hugetlb_pages);
  return out;
}

}  // namespace faultline::kernel
