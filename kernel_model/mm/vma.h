// SPDX-License-Identifier: Apache-2.0
//
// One mapping of a process and the ordered set of them.
//
// Stands for: struct vm_area_struct and the VMA tree (include/linux/mm_types.h, mm/mmap.c, v4.15-6.18).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernel_model/mm/anon_vma.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

// VM_*, with the kernel's own values where it has them (include/linux/mm.h).
enum VmFlags : std::uint64_t {
  VM_NONE = 0, VM_READ = 0x1, VM_WRITE = 0x2, VM_EXEC = 0x4, VM_SHARED = 0x8,
  VM_MAYREAD = 0x10, VM_MAYWRITE = 0x20, VM_MAYEXEC = 0x40, VM_MAYSHARE = 0x80,
  VM_GROWSDOWN = 0x100, VM_PFNMAP = 0x400, VM_LOCKED = 0x2000, VM_DONTCOPY = 0x20000, VM_DONTEXPAND = 0x40000,
  VM_LOCKONFAULT = 0x80000, VM_ACCOUNT = 0x100000, VM_NORESERVE = 0x200000, VM_HUGETLB = 0x400000,
  VM_WIPEONFORK = 0x2000000, VM_DONTDUMP = 0x4000000, VM_SOFTDIRTY = 0x8000000,
  VM_HUGEPAGE = 0x20000000, VM_NOHUGEPAGE = 0x40000000,
};

struct VmaLockData;  // the per-VMA lock (facts 1.6, 9); only with per_vma_lock

struct Vma {
  VirtAddr start, end;
  std::uint64_t vm_flags = 0;
  std::uint64_t vm_pgoff = 0;          // anonymous private: start >> page shift at creation
  AnonVmaRef anon_vma;                 // set by the first fault; a copy shares it
  std::uint32_t anon_vma_chain = 0;    // 1: own (singular); more after fork
  std::string name;                    // "[heap]", "[stack]", a file's name; "" for anonymous
  std::string anon_name;               // PR_SET_VMA_ANON_NAME
  bool anonymous = true;               // no file behind it
  std::unique_ptr<VmaLockData> lock;

  Vma();
  ~Vma();
  Vma(Vma&&) noexcept;
  Vma& operator=(Vma&&) noexcept;
  [[nodiscard]] Range range() const { return {start, end}; }
  [[nodiscard]] std::uint64_t bytes() const { return end.v - start.v; }
};

}  // namespace faultline::kernel
