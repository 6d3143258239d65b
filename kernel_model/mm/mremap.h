// SPDX-License-Identifier: Apache-2.0
//
// mremap(2), its parts.
//
// Stands for: mremap_to(), move_vma(), copy_vma(), vma_to_resize() (mm/mremap.c, mm/mmap.c,
// v4.15-6.18).
#pragma once

#include <cstdint>

#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/vma.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;

struct MremapArgs {
  VirtAddr old_start;
  std::uint64_t old_length = 0;  // rounded up to pages
  std::uint64_t new_length = 0;
  unsigned flags = 0;
  VirtAddr new_start;
};

// The VMA that holds the old range, if it may get the new length: vma_to_resize().
[[nodiscard]] SysResult<Vma*> vma_to_resize(Mm& mm, const MremapArgs& args);

// Without a new address: shrinks, grows in place or moves to where there is room.
SysResult<VirtAddr> mremap_at(Task& task, Mm& mm, const MremapArgs& args,
                              MunmapResult& result);

// 6.17 and later: checks that need no lock, and the call itself.
[[nodiscard]] Errno check_mremap_params(const Mm& mm, const MremapArgs& args);
SysResult<VirtAddr> do_mremap_6_17(Task& task, Mm& mm, const MremapArgs& args,
                                   MunmapResult& result);

// Moves the range to `to`, which is free.  `old` holds it.
SysResult<VirtAddr> move_vma(Task& task, Mm& mm, Vma& old, const MremapArgs& args,
                             VirtAddr to);

}  // namespace faultline::kernel
