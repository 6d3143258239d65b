// SPDX-License-Identifier: Apache-2.0
//
// Which neighbours may take a range over, and how they do.
//
// Two neighbours are one mapping to the user; the kernel makes them one VMA if nothing
// tells them apart: flags, file, name, page offset, and the owner of their anonymous pages.
// The last has a twist: before 6.16 a range that has been faulted in can't join a neighbour
// that hasn't (only the other way round), since the neighbour's empty list of owners
// doesn't pass as "singular".
//
// Stands for: vma_merge(), can_vma_merge_before(), can_vma_merge_after(),
// is_mergeable_anon_vma() (mm/mmap.c, v4.15-6.8; mm/vma.c, v6.12-6.18).  Model: no NUMA
// policy, no userfaultfd.
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/vma_ops.h"
#include "sim/check.h"

namespace faultline::kernel {

namespace {

// is_mergeable_vma()
bool same_kind(const Vma& vma, const VmaSpec& spec) {
  if (((vma.vm_flags ^ spec.vm_flags) & ~kVmSticky) != 0) return false;
  if (vma.anonymous != spec.anonymous) return false;
  if (!vma.anonymous && (vma.name != spec.name || vma.file != spec.file)) return false;
  return vma.anon_name == spec.anon_name;
}

// is_mergeable_anon_vma(): the range of `spec` joins `vma`.
bool owner_allows(const Mm& mm, const Vma& vma, const VmaSpec& spec) {
  if (spec.anon_vma == nullptr && vma.anon_vma != nullptr) return vma.anon_vma_chain == 1;
  if (spec.anon_vma != nullptr && vma.anon_vma == nullptr)
    return mm.kernel().config().merge_into_unfaulted && spec.anon_vma_chain == 1;
  return spec.anon_vma == vma.anon_vma;
}

bool can_join_below(const Mm& mm, const Vma* below, const VmaSpec& spec,
                    unsigned page_shift) {
  return below != nullptr && below->end == spec.range.start && same_kind(*below, spec) &&
         below->vm_pgoff + (below->bytes() >> page_shift) == spec.vm_pgoff &&
         owner_allows(mm, *below, spec);
}

bool can_join_above(const Mm& mm, const Vma* above, const VmaSpec& spec,
                    unsigned page_shift) {
  return above != nullptr && above->start == spec.range.end && same_kind(*above, spec) &&
         spec.vm_pgoff + (spec.range.bytes() >> page_shift) == above->vm_pgoff &&
         owner_allows(mm, *above, spec);
}

// dup_anon_vma(), and the sticky flags.
void take_owner(Vma& vma, const AnonVmaRef& anon_vma, std::uint32_t chain,
                std::uint64_t flags) {
  vma.vm_flags |= flags & kVmSticky;
  if (vma.anon_vma != nullptr || anon_vma == nullptr) return;
  vma.anon_vma = anon_vma;
  vma.anon_vma_chain = chain;
}

bool owners_differ(const Vma& a, const Vma& b) {
  return a.anon_vma != nullptr && b.anon_vma != nullptr && !(a.anon_vma == b.anon_vma);
}

struct Neighbours {
  Vma* below = nullptr;  // takes the range over from below
  Vma* above = nullptr;
};

Neighbours mergeable(const Mm& mm, Vma* below, Vma* above, const VmaSpec& spec) {
  if ((spec.vm_flags & kVmSpecial) != 0) return {};
  const unsigned shift = mm.kernel().profile().geometry.page_shift;
  Neighbours n;
  if (can_join_below(mm, below, spec, shift)) n.below = below;
  if (can_join_above(mm, above, spec, shift)) n.above = above;
  if (n.below != nullptr && n.above != nullptr && owners_differ(*n.below, *n.above))
    n.above = nullptr;
  return n;
}

// The order of mmap_region() in 6.1-6.11: above first, and what lies below must suit the
// result.
Neighbours mergeable_next_first(const Mm& mm, Vma* below, Vma* above, const VmaSpec& spec) {
  if ((spec.vm_flags & kVmSpecial) != 0) return {};
  const unsigned shift = mm.kernel().profile().geometry.page_shift;
  Neighbours n;
  VmaSpec joined = spec;
  if (can_join_above(mm, above, spec, shift)) {
    n.above = above;
    joined.anon_vma = above->anon_vma;
    joined.anon_vma_chain = above->anon_vma_chain;
  }
  if (can_join_below(mm, below, joined, shift)) n.below = below;
  return n;
}

// `above` reaches down to `start`.
void grow_down(Mm& mm, Vma& above, VirtAddr start, unsigned page_shift) {
  above.vm_pgoff -= (above.start - start) >> page_shift;
  mm.vmas.set_range(above, {start, above.end});
}

// What grew may now hold a huge page (khugepaged_enter_vma_merge()).
Vma* grown(Task& task, Mm& mm, Vma* vma) {
  mm.pages().khugepaged_enter_vma(task, *vma);
  return vma;
}

// The neighbours take the free range over.
Vma* join(Task& task, Mm& mm, const Neighbours& n, const VmaSpec& spec) {
  if (n.below == nullptr && n.above == nullptr) return nullptr;
  const Scope scope(task, centre::kVmaMerge);
  if (n.below != nullptr) mm.vma_start_write(task, *n.below);
  if (n.above != nullptr) mm.vma_start_write(task, *n.above);
  if (n.below == nullptr) {
    take_owner(*n.above, spec.anon_vma, spec.anon_vma_chain, spec.vm_flags);
    grow_down(mm, *n.above, spec.range.start, mm.kernel().profile().geometry.page_shift);
    return grown(task, mm, n.above);
  }
  take_owner(*n.below, spec.anon_vma, spec.anon_vma_chain, spec.vm_flags);
  VirtAddr end = spec.range.end;
  if (n.above != nullptr) {
    task.charge(mm.kernel().profile().costs.vma_split_merge);
    take_owner(*n.below, n.above->anon_vma, n.above->anon_vma_chain, n.above->vm_flags);
    end = n.above->end;
    remove_vma(mm, *n.above);
  }
  mm.vmas.set_range(*n.below, {n.below->start, end});
  return grown(task, mm, n.below);
}

}  // namespace

Vma* vma_merge_new_range(Task& task, Mm& mm, const VmaSpec& spec) {
  Vma* const next = mm.vmas.find(spec.range.start);
  Vma* const prev = next != nullptr ? next->prev() : mm.vmas.last();
  return join(task, mm, mergeable(mm, prev, next, spec), spec);
}

Vma* vma_merge_mmap(Task& task, Mm& mm, const VmaSpec& spec) {
  if (!mm.kernel().config().mmap_prefers_next) return vma_merge_new_range(task, mm, spec);
  Vma* const next = mm.vmas.find(spec.range.start);
  Vma* const prev = next != nullptr ? next->prev() : mm.vmas.last();
  return join(task, mm, mergeable_next_first(mm, prev, next, spec), spec);
}

Vma* vma_expand_up(Task& task, Mm& mm, Vma& vma, const VmaSpec& spec) {
  const Neighbours n = mergeable(mm, &vma, nullptr, spec);
  if (n.below == nullptr) return nullptr;
  mm.vma_start_write(task, vma);
  vma.vm_flags |= spec.vm_flags & kVmSticky;
  mm.vmas.set_range(vma, {vma.start, spec.range.end});
  return grown(task, mm, &vma);
}

Vma* vma_merge_existing_range(Task& task, Mm& mm, Vma& middle, const VmaSpec& spec) {
  FAULTLINE_CHECK(middle.range().contains(spec.range));
  const bool at_start = spec.range.start == middle.start;
  const bool at_end = spec.range.end == middle.end;
  const Neighbours n = mergeable(mm, at_start ? middle.prev() : nullptr,
                                 at_end ? middle.next() : nullptr, spec);
  if (n.below == nullptr && n.above == nullptr) return nullptr;

  const Scope scope(task, centre::kVmaMerge);
  const arch::Profile& profile = mm.kernel().profile();
  task.charge(profile.costs.vma_split_merge);
  mm.vma_start_write(task, middle);
  if (n.below != nullptr) mm.vma_start_write(task, *n.below);
  if (n.above != nullptr) mm.vma_start_write(task, *n.above);
  const bool whole = at_start && at_end;
  // The boundary inside `middle` moves to where a huge page may lie across it.
  if (!at_end) mm.pages().vma_adjust_trans_huge(task, middle, spec.range.end);
  if (!at_start) mm.pages().vma_adjust_trans_huge(task, middle, spec.range.start);

  if (n.below == nullptr) {
    take_owner(*n.above, spec.anon_vma, spec.anon_vma_chain, spec.vm_flags);
    if (whole)
      remove_vma(mm, middle);
    else
      mm.vmas.set_range(middle, {middle.start, spec.range.start});
    grow_down(mm, *n.above, spec.range.start, profile.geometry.page_shift);
    return grown(task, mm, n.above);
  }
  take_owner(*n.below, spec.anon_vma, spec.anon_vma_chain, spec.vm_flags);
  VirtAddr end = spec.range.end;
  if (n.above != nullptr) {  // then the range is all of `middle`
    take_owner(*n.below, n.above->anon_vma, n.above->anon_vma_chain, n.above->vm_flags);
    end = n.above->end;
    remove_vma(mm, *n.above);
  }
  if (whole) {
    remove_vma(mm, middle);
  } else {
    middle.vm_pgoff += spec.range.bytes() >> profile.geometry.page_shift;
    mm.vmas.set_range(middle, {spec.range.end, middle.end});
  }
  mm.vmas.set_range(*n.below, {n.below->start, end});
  return grown(task, mm, n.below);
}

}  // namespace faultline::kernel
