// SPDX-License-Identifier: Apache-2.0
//
// What the libc's code for each architecture knows of transparent huge pages by itself.
//
// A huge page is what one entry of the table above the page tables maps.  Where tables are
// whole pages of 8-byte entries, its size follows from the page size; s390 fixes it; POWER
// has two MMUs with two sizes, so that only the kernel can tell.  What is derived counts
// only if the kernel says the same (hpage_pmd_size): a kernel without THP, or with another
// geometry, is believed.
//
// Stands for: the architecture hooks of "malloc: improve THP effectiveness" (libc-alpha,
// August 2021: aarch64, mips, powerpc, riscv, s390, sparc, x86), and, from 2.43,
// MALLOC_DEFAULT_THP_PAGESIZE (malloc-hugepages.h).  From 2.35 on all architectures read
// sysfs.  Model: the text of the hooks is not at hand; this is what they must have said.
#pragma once

#include <cstdint>
#include <string_view>

#include "allocator/platform.h"

namespace faultline::alloc {

enum class ThpSizeFrom : std::uint8_t { kPageSize, kArchitecture, kKernel };

struct ThpHook {
  Architecture architecture;
  std::string_view name;
  ThpSizeFrom from;
  std::uint64_t size = 0;          // kArchitecture
  std::uint64_t default_size = 0;  // used from 2.43 on without any tunable; 0: none
};

[[nodiscard]] const ThpHook& thp_hook(Architecture architecture);
// Without asking the kernel; 0 if only the kernel knows.
[[nodiscard]] std::uint64_t derived_thp_size(const ThpHook& hook, std::uint64_t page_size);
// What malloc goes by: 0 without THP.
[[nodiscard]] std::uint64_t verified_thp_size(const PlatformFacts& facts);

}  // namespace faultline::alloc
