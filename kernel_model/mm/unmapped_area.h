// SPDX-License-Identifier: Apache-2.0
//
// Where a new mapping goes.
//
// Stands for: get_unmapped_area(), arch_get_unmapped_area_topdown(),
// __thp_get_unmapped_area() (mm/mmap.c, mm/huge_memory.c, v4.15-6.18).
#pragma once

#include <cstdint>
#include <memory>

#include "kernel_model/types.h"

namespace faultline::kernel {

class File;
class Mm;

// What a new mapping maps; no file: anonymous memory.
struct FileMapping {
  std::shared_ptr<File> file{};
  std::uint64_t offset_pages = 0;
};

// The start of a free range for `length` bytes (page aligned, not 0), or the kernel's
// errno: the hint if it is free, else the highest place below mmap_base, else the lowest
// above a third of the address space.  MAP_FIXED: the hint itself, mapped or not.
[[nodiscard]] SysResult<VirtAddr> get_unmapped_area(Mm& mm, VirtAddr hint,
                                                    std::uint64_t length, unsigned flags,
                                                    const FileMapping& mapping = {});

// round_hint_to_min(): a hint is rounded down to a page, and raised to mmap_min_addr.
[[nodiscard]] VirtAddr round_hint_to_min(const Mm& mm, VirtAddr hint);

}  // namespace faultline::kernel
