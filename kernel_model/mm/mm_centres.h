// SPDX-License-Identifier: Apache-2.0
//
// The kernel functions of the VMA side that time is booked to.
#pragma once

#include "sim/cost_centre.h"

namespace faultline::kernel::centre {

inline constexpr Centre kSysMmap{"sys_mmap", true}, kSysMunmap{"sys_munmap", true},
    kSysBrk{"sys_brk", true}, kSysMprotect{"sys_mprotect", true},
    kSysMadvise{"sys_madvise", true}, kSysMremap{"sys_mremap", true},
    kSysMlock{"sys_mlock", true}, kSysMunlock{"sys_munlock", true},
    kSysMincore{"sys_mincore", true}, kSysVrange{"sys_vrange", true},
    kSysPrctl{"sys_prctl", true}, kSysFork{"sys_fork", true},
    kSysExecve{"sys_execve", true}, kSysExitGroup{"sys_exit_group", true},
    kSysNanosleep{"sys_nanosleep", true}, kSysSchedYield{"sys_sched_yield", true};

inline constexpr Centre kVmMmapPgoff{"vm_mmap_pgoff", true}, kDoMmap{"do_mmap", true},
    kMmapRegion{"mmap_region", true}, kVmMunmap{"vm_munmap", true},
    kDoMunmap{"do_munmap", true}, kUnmapRegion{"unmap_region", true},
    kDoBrkFlags{"do_brk_flags", true}, kMprotectFixup{"mprotect_fixup", true},
    kMadviseDontneed{"madvise_dontneed", true}, kMadviseFree{"madvise_free", true},
    kMadviseVmaBehavior{"madvise_vma_behavior", true}, kMoveVma{"move_vma", true},
    kMremapTo{"mremap_to", true}, kVmaMerge{"vma_merge", true},
    kSplitVma{"__split_vma", true}, kMmPopulate{"__mm_populate", true},
    kDupMmap{"dup_mmap", true}, kExitMmap{"exit_mmap", true};

}  // namespace faultline::kernel::centre
