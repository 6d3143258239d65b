// SPDX-License-Identifier: Apache-2.0
//
// New, split and modified VMAs: see vma_ops.h.  Merging is in vma_merge.cc.
#include "kernel_model/mm/vma_ops.h"

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "sim/check.h"

namespace faultline::kernel {

VmaSpec VmaSpec::of(const Vma& vma, Range part, unsigned page_shift) {
  VmaSpec spec;
  spec.range = part;
  spec.vm_flags = vma.vm_flags;
  spec.vm_pgoff = vma.vm_pgoff + ((part.start - vma.start) >> page_shift);
  spec.anon_vma = vma.anon_vma;
  spec.anon_vma_chain = vma.anon_vma_chain;
  spec.anonymous = vma.anonymous;
  spec.name = vma.name;
  spec.anon_name = vma.anon_name;
  spec.hugetlb = vma.hugetlb;
  spec.file = vma.file;
  return spec;
}

namespace {

Vma& make_vma(Mm& mm, const VmaSpec& spec) {
  Vma& vma = mm.vmas.make();
  vma.start = spec.range.start;
  vma.end = spec.range.end;
  vma.vm_flags = spec.vm_flags;
  vma.vm_pgoff = spec.vm_pgoff;
  vma.anon_vma = spec.anon_vma;
  vma.anon_vma_chain = spec.anon_vma_chain;
  vma.anonymous = spec.anonymous;
  if (!spec.name.empty()) vma.name = spec.name;
  if (!spec.anon_name.empty()) vma.anon_name = spec.anon_name;
  vma.hugetlb = spec.hugetlb;
  vma.file = spec.file;
  vma.lock.stamp(mm.mm_lock_seq);  // nobody can be inside
  return vma;
}

}  // namespace

Vma& vma_link(Task&, Mm& mm, const VmaSpec& spec) {
  Vma& vma = make_vma(mm, spec);
  mm.vmas.insert(vma);
  return vma;
}

Vma& split_vma(Task& task, Mm& mm, Vma& vma, VirtAddr at) {
  FAULTLINE_CHECK(vma.start < at && at < vma.end);
  const Scope scope(task, centre::kSplitVma);
  const arch::Profile& profile = mm.kernel().profile();
  task.charge(profile.costs.vma_split_merge);
  mm.vma_start_write(task, vma);
  mm.pages().vma_adjust_trans_huge(task, vma, at);
  Vma& above = make_vma(mm, VmaSpec::of(vma, {at, vma.end}, profile.geometry.page_shift));
  mm.vmas.set_range(vma, {vma.start, at});
  mm.vmas.insert(above);
  return above;
}

Vma* vma_modify(Task& task, Mm& mm, Vma& vma, const VmaSpec& spec) {
  if (Vma* merged = vma_merge_existing_range(task, mm, vma, spec)) return merged;
  const std::size_t limit = mm.kernel().config().max_map_count;
  Vma* part = &vma;
  if (part->start < spec.range.start) {
    if (mm.vmas.size() >= limit) return nullptr;
    part = &split_vma(task, mm, *part, spec.range.start);
  }
  if (spec.range.end < part->end) {
    if (mm.vmas.size() >= limit) return nullptr;
    split_vma(task, mm, *part, spec.range.end);
  }
  mm.vma_start_write(task, *part);
  part->vm_flags = spec.vm_flags;
  part->anon_name = spec.anon_name;
  return part;
}

void remove_vma(Mm& mm, Vma& vma) {
  mm.vmas.remove(vma);
  mm.vmas.free(vma);
}

}  // namespace faultline::kernel
