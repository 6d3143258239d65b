// SPDX-License-Identifier: Apache-2.0
//
// What the kernel knows of one page frame, and the table of all of them.
//
// The table is reserved at once and committed by the host only where it is touched: a
// machine with 256 GiB costs what its used frames cost.
//
// Stands for: struct page and mem_map (include/linux/mm_types.h, v4.15-6.18), as much as is
// needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_model/phys/lazy_memory.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

// Only the head of an allocated block is set up: the pages behind it hold garbage (but
// never kBuddy or kPcp), and who splits the block sets them up.
struct Page {
  enum Flags : std::uint16_t {
    kAnon = 1,
    kHead = 2,
    kTail = 4,
    kLazyfree = 8,
    kLru = 16,
    kActive = 32,
    kSwapbacked = 64,
    kDirty = 128,
    kDeferredSplit = 256,
    kZeroPage = 512,
    kTable = 1024,
    kBuddy = 2048,
    kUnmovable = 4096,
    kPcp = 8192,
    kAnonExclusive = 16384,  // PG_anon_exclusive: not shared by a fork (since)
    kUnevictable = 32768     // PG_unevictable: some VM_LOCKED mapping has it
  };
  std::uint16_t flags = 0;
  std::uint8_t order = 0;  // of a head page
  std::uint8_t node = 0;
  std::int32_t mapcount = 0;  // PTE mappings of this page; PMD mappings are on the head
  std::int32_t refcount = 0;  // free block: the link back
  std::uint32_t link = 0;     // free block: the link on; otherwise the LRU's
};
static_assert(sizeof(Page) == 16);

class FrameTable {
 public:
  explicit FrameTable(std::size_t frames);
  FrameTable(const FrameTable&) = delete;
  FrameTable& operator=(const FrameTable&) = delete;

  [[nodiscard]] Page& operator[](Pfn pfn) { return pages_[pfn.v]; }
  [[nodiscard]] const Page& operator[](Pfn pfn) const { return pages_[pfn.v]; }
  [[nodiscard]] std::size_t size() const { return frames_; }

 private:
  LazyMemory memory_;
  Page* pages_ = nullptr;
  std::size_t frames_ = 0;
};

}  // namespace faultline::kernel
