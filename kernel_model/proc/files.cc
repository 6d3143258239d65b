// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/files.h"

#include <string>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/proc/lock_stat.h"
#include "kernel_model/proc/maps.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/status.h"
#include "kernel_model/proc/system_views.h"
#include "kernel_model/proc/vrange.h"

namespace faultline::kernel {

std::vector<PseudoFile> proc_files(Kernel& kernel) {
  std::vector<PseudoFile> files{
      {"proc/vmstat", vmstat_text(kernel)},
      {"proc/meminfo", meminfo_text(kernel)},
      {"proc/buddyinfo", buddyinfo_text(kernel)},
      {"proc/lock_stat", lock_stat_text(kernel.engine().locks())}};
  unsigned pid = 0;
  for (const auto& process : kernel.processes()) {
    const std::string folder = "proc/" + std::to_string(++pid) + "/";
    Mm& mm = process->mm();
    if (mm.exiting) continue;
    files.push_back({folder + "maps", maps_text(mm)});
    files.push_back({folder + "smaps", smaps_text(mm)});
    files.push_back({folder + "smaps_rollup", smaps_rollup_text(mm)});
    files.push_back({folder + "status", status_text(mm)});
    if (kernel.config().vrange != VrangeVersion::kNone)
      files.push_back({folder + "vrange", vrange_text(mm)});
  }
  for (PseudoFile& file : thp_sysfs(kernel))
    files.push_back(
        {"sys/kernel/mm/transparent_hugepage/" + file.path, std::move(file.text)});
  return files;
}

}  // namespace faultline::kernel
