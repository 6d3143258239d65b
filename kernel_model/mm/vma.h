// SPDX-License-Identifier: Apache-2.0
//
// One mapping of a process.  The ordered set of them is mm/vma_set.h, their changes
// mm/vma_ops.h.
//
// Stands for: struct vm_area_struct (include/linux/mm_types.h, v4.15-6.18).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernel_model/mm/anon_vma.h"
#include "kernel_model/mm/vma_lock.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

// VM_*, with the kernel's own values where it has them (include/linux/mm.h).
enum VmFlags : std::uint64_t {
  VM_NONE = 0,
  VM_READ = 0x1,
  VM_WRITE = 0x2,
  VM_EXEC = 0x4,
  VM_SHARED = 0x8,
  VM_MAYREAD = 0x10,
  VM_MAYWRITE = 0x20,
  VM_MAYEXEC = 0x40,
  VM_MAYSHARE = 0x80,
  VM_GROWSDOWN = 0x100,
  VM_PFNMAP = 0x400,
  VM_MAYBE_GUARD = 0x800,  // 6.18: a guard page was put here once
  VM_LOCKED = 0x2000,
  VM_IO = 0x4000,
  VM_SEQ_READ = 0x8000,
  VM_RAND_READ = 0x10000,
  VM_DONTCOPY = 0x20000,
  VM_DONTEXPAND = 0x40000,
  VM_LOCKONFAULT = 0x80000,
  VM_ACCOUNT = 0x100000,
  VM_NORESERVE = 0x200000,
  VM_HUGETLB = 0x400000,
  VM_WIPEONFORK = 0x2000000,
  VM_DONTDUMP = 0x4000000,
  VM_SOFTDIRTY = 0x8000000,
  VM_MIXEDMAP = 0x10000000,
  VM_HUGEPAGE = 0x20000000,
  VM_NOHUGEPAGE = 0x40000000,
  // Of the patches that were never merged, which re-used other bits.
  VM_VOLATILE = 0x1'0000'0000,  // may be purged (volatile ranges as VMA flags)
  VM_PURGED = 0x2'0000'0000,    // a page of it was
};
// What mmap's PROT_* becomes: the lowest three bits.
inline constexpr std::uint64_t kVmAccessFlags = VM_READ | VM_WRITE | VM_EXEC;
// Flags that don't keep neighbours apart: what they merge to has them if either had.
inline constexpr std::uint64_t kVmSticky = VM_SOFTDIRTY | VM_MAYBE_GUARD;
// Mappings that never merge or take most advice (VM_SPECIAL).
inline constexpr std::uint64_t kVmSpecial = VM_IO | VM_DONTEXPAND | VM_PFNMAP | VM_MIXEDMAP;

struct HugetlbMapping;  // kernel_model/mm/hugetlb.h
class File;             // kernel_model/mm/page_cache.h

struct Vma {
  VirtAddr start, end;
  std::uint64_t vm_flags = 0;
  std::uint64_t vm_pgoff = 0;        // anonymous private: start >> page shift at creation
  AnonVmaRef anon_vma;               // set by the first fault; a copy shares it
  std::uint32_t anon_vma_chain = 0;  // 1: own (singular); more after fork
  bool anonymous = true;             // no file behind it
  std::string name;                  // "[heap]", "[stack]", a file's name; "" for anonymous
  std::string anon_name;             // PR_SET_VMA_ANON_NAME
  std::shared_ptr<HugetlbMapping>
      hugetlb;                 // VM_HUGETLB: shared by the parts of a split mapping
  std::shared_ptr<File> file;  // vm_file; null for the program's own text and data
  PerVmaLock lock;

  Vma() = default;
  Vma(const Vma&) = delete;
  Vma& operator=(const Vma&) = delete;

  // Where `at` lies in the mapping's object, in pages; kept by mremap.
  [[nodiscard]] std::uint64_t linear_page_index(VirtAddr at, unsigned page_shift) const {
    return vm_pgoff + ((at - start) >> page_shift);
  }
  [[nodiscard]] Range range() const { return {start, end}; }
  [[nodiscard]] std::uint64_t bytes() const { return end.v - start.v; }
  // The neighbours in address order, adjacent or not; null at the ends.
  [[nodiscard]] Vma* prev() const { return prev_; }
  [[nodiscard]] Vma* next() const { return next_; }

 private:
  friend class VmaSet;
  Vma *prev_ = nullptr, *next_ = nullptr;
  Vma *parent_ = nullptr, *left_ = nullptr, *right_ = nullptr;
  std::uint32_t priority_ = 0;
  std::uint64_t gap_ = 0;      // free bytes below this VMA, down to its neighbour
  std::uint64_t max_gap_ = 0;  // the largest gap_ in its subtree
};

}  // namespace faultline::kernel
