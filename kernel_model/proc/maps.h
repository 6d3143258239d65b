// SPDX-License-Identifier: Apache-2.0
//
// /proc/PID/maps.
//
// Stands for: show_map_vma(), show_vma_header_prefix() (fs/proc/task_mmu.c, v4.15-6.18).
// Model: every named file is inode 7 of device 00:02, the initramfs's /init.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel_model/mm/vma.h"

namespace faultline::kernel {

class Mm;

[[nodiscard]] std::string map_header(VirtAddr start, VirtAddr end, std::string_view perms,
                                     std::uint64_t offset,
                                     std::string_view device_and_inode,
                                     std::string_view name);
[[nodiscard]] std::string map_line(const Mm& mm, const Vma& vma);
[[nodiscard]] std::string maps_text(const Mm& mm);

}  // namespace faultline::kernel
