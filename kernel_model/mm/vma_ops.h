// SPDX-License-Identifier: Apache-2.0
//
// What can happen to VMAs: new ones, splits, merges.  All under mmap_lock held for write;
// each VMA that changes is write-locked first, which waits for the faults inside it.
//
// Stands for: vma_merge(), __split_vma(), vma_expand(), vma_link() (mm/mmap.c, v4.15-6.8;
// mm/vma.c, v6.12-6.18).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel_model/mm/anon_vma.h"
#include "kernel_model/mm/vma.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;

// A range with the properties it is to have: what a neighbour must share to take it over.
struct VmaSpec {
  Range range;
  std::uint64_t vm_flags = 0;
  std::uint64_t vm_pgoff = 0;
  AnonVmaRef anon_vma;
  std::uint32_t anon_vma_chain = 0;
  bool anonymous = true;
  std::string_view name;  // of a string that outlives the call
  std::string_view anon_name;
  std::shared_ptr<HugetlbMapping> hugetlb{};
  std::shared_ptr<File> file{};

  // As `vma` is now over `part` of it.
  [[nodiscard]] static VmaSpec of(const Vma& vma, Range part, unsigned page_shift);
};

// Puts the free range in as a mapping of its own.
Vma& vma_link(Task& task, Mm& mm, const VmaSpec& spec);

// The free range becomes part of a neighbour (or joins both); null if none takes it.
Vma* vma_merge_new_range(Task& task, Mm& mm, const VmaSpec& spec);
// The same for a new mapping, by the rules of this version's mmap_region().
Vma* vma_merge_mmap(Task& task, Mm& mm, const VmaSpec& spec);

// `vma` grows over the free range above it if it has the spec's properties; null if it
// hasn't.
Vma* vma_expand_up(Task& task, Mm& mm, Vma& vma, const VmaSpec& spec);

// `spec.range` is a part of `middle`, which is to get the spec's properties.  If a
// neighbour has them already, it takes the range over; null if none does.  `middle` may be
// gone afterwards.
Vma* vma_merge_existing_range(Task& task, Mm& mm, Vma& middle, const VmaSpec& spec);

// `vma` keeps what is below `at`; answers the new one above.  Doesn't look at
// max_map_count.
Vma& split_vma(Task& task, Mm& mm, Vma& vma, VirtAddr at);

// Makes `part` of `vma` a VMA with the properties of `spec`: merges it with a neighbour or
// splits it off.  Null if a split would exceed max_map_count (nothing of `part` has changed
// then, but one edge may have been split off).  Sets flags and anon_name of the VMA that
// holds `part` then. Stands for: vma_modify() (v6.8 and later), open-coded in mprotect and
// madvise before.
Vma* vma_modify(Task& task, Mm& mm, Vma& vma, const VmaSpec& spec);

// Takes a write-locked VMA with nothing mapped out and frees it.
void remove_vma(Mm& mm, Vma& vma);

}  // namespace faultline::kernel
