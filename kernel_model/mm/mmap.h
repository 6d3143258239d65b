// SPDX-License-Identifier: Apache-2.0
//
// Making and removing mappings, as the system calls share it.
//
// Stands for: do_mmap(), mmap_region(), do_munmap() and what they call (mm/mmap.c,
// v4.15-6.8; mm/vma.c, v6.12-6.18).
#pragma once

#include <cstdint>

#include "kernel_model/mm/mm.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

// What do_munmap does with mmap_lock, which it finds held for write.
enum class MunmapLock : std::uint8_t {
  kKeep,       // stays held for write
  kDowngrade,  // may be held for read afterwards
};
struct MunmapResult {
  Errno error = Errno::kOk;
  bool downgraded = false;
};
// `start` and `length` as user space gave them.  Nothing mapped there is success.
MunmapResult do_munmap(Task& task, Mm& mm, VirtAddr start, std::uint64_t length,
                       MunmapLock lock);
// Gives mmap_lock back after do_munmap, in whichever mode it is held.
void unlock_after_munmap(Task& task, Mm& mm, const MunmapResult& result);

// What mmap answers if what is in the way can't be unmapped: from 6.12 that error itself,
// ENOMEM before.
[[nodiscard]] Errno mmap_unmap_error(const Kernel& kernel, Errno error);

// PROT_* and MAP_* to VM_*, with what every new mapping may be given later.
[[nodiscard]] std::uint64_t calc_vm_flags(const Mm& mm, unsigned prot, unsigned flags);

// Bytes rounded up to pages; 0 if that wraps.
[[nodiscard]] inline std::uint64_t page_align(const Mm& mm, std::uint64_t bytes) {
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  return (bytes + page - 1) & ~(page - 1);
}
[[nodiscard]] inline bool page_aligned(const Mm& mm, VirtAddr at) {
  return (at.v & (mm.kernel().profile().geometry.page_size() - 1)) == 0;
}
[[nodiscard]] inline std::uint64_t pages_of(const Mm& mm, std::uint64_t bytes) {
  return bytes >> mm.kernel().profile().geometry.page_shift;
}

}  // namespace faultline::kernel
