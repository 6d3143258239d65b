// SPDX-License-Identifier: Apache-2.0
//
// The files of /proc that speak of the whole machine: vmstat, meminfo, buddyinfo.
//
// Stands for: vmstat_show(), frag_show_print() (mm/vmstat.c), meminfo_proc_show()
// (fs/proc/meminfo.c), v4.15-6.18.  Model: no page cache, slab or vmalloc: their lines are
// zero; vmstat names only the counters that the model keeps.
#pragma once

#include <string>

namespace faultline::kernel {

class Kernel;

[[nodiscard]] std::string vmstat_text(Kernel& kernel);
[[nodiscard]] std::string meminfo_text(Kernel& kernel);
[[nodiscard]] std::string buddyinfo_text(Kernel& kernel);

}  // namespace faultline::kernel
