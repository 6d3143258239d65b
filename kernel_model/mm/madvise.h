// SPDX-License-Identifier: Apache-2.0
//
// madvise(2), its parts: which advice this kernel knows, which lock it takes, what it does
// to one VMA.
//
// Stands for: do_madvise(), madvise_walk_vmas(), madvise_vma_behavior() (mm/madvise.c,
// v4.15-6.18).
#pragma once

#include <cstdint>
#include <optional>

#include "kernel_model/mm/vma.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;

enum class AdviceLock : std::uint8_t { kRead, kVmaRead, kWrite };

// madvise_behavior_valid(): is it an advice that this kernel has?
[[nodiscard]] bool advice_known(const Kernel& kernel, Madvise advice);
// get_lock_mode()
[[nodiscard]] AdviceLock advice_lock(const Kernel& kernel, Madvise advice);

// Advice that is a flag of the VMA: the flags it makes of `vma`'s; an errno if `vma` can't
// have it; nothing if the advice isn't of that kind.
[[nodiscard]] std::optional<SysResult<std::uint64_t>> advised_flags(const Vma& vma,
                                                                    Madvise advice);

// Does the advice to `part` of `vma`, which lies inside it.  `vma` becomes the VMA that
// holds the part then.
Errno madvise_vma(Task& task, Mm& mm, Vma*& vma, Range part, Madvise advice);

// --- guard.cc
Errno madvise_guard_install(Task& task, Mm& mm, Vma& vma, Range part);
Errno madvise_guard_remove(Task& task, Mm& mm, Vma& vma, Range part);

}  // namespace faultline::kernel
