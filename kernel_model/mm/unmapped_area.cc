// SPDX-License-Identifier: Apache-2.0
//
// Placement of mappings: see unmapped_area.h.
#include "kernel_model/mm/unmapped_area.h"

#include <algorithm>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/page_cache.h"

namespace faultline::kernel {

namespace {

std::uint64_t round_down(std::uint64_t v, std::uint64_t to) {
  return v & ~(to - 1);
}
std::uint64_t round_up(std::uint64_t v, std::uint64_t to) {
  return round_down(v + to - 1, to);
}

// vm_unmapped_area(): top-down below mmap_base; if that is full, bottom-up from
// TASK_UNMAPPED_BASE.
SysResult<VirtAddr> search(Mm& mm, std::uint64_t length) {
  const arch::Profile& profile = mm.kernel().profile();
  const std::uint64_t page = profile.geometry.page_size();
  const VirtAddr low{std::max(page, profile.layout.mmap_min_addr)};
  if (const auto top_down = mm.vmas.highest_gap(length, {low, mm.mmap_base}))
    return *top_down;
  const VirtAddr unmapped_base{round_up(profile.layout.task_size / 3, page)};
  if (const auto bottom_up =
          mm.vmas.lowest_gap(length, {unmapped_base, VirtAddr{profile.layout.task_size}}))
    return *bottom_up;
  return Errno::kENOMEM;
}

// The hint is taken if the range is free, guard gap of a stack above included.
bool hint_fits(const Mm& mm, VirtAddr hint, std::uint64_t length) {
  const arch::Layout& layout = mm.kernel().profile().layout;
  if (hint.v > layout.task_size - length || hint.v < layout.mmap_min_addr) return false;
  const Vma* const next = mm.vmas.find(hint);
  return next == nullptr || hint.v + length <= mm.vmas.start_gap(*next);
}

// arch_get_unmapped_area_topdown()
SysResult<VirtAddr> place(Mm& mm, VirtAddr hint, std::uint64_t length) {
  if (hint.v != 0 && hint_fits(mm, hint, length)) return hint;
  return search(mm, length);
}

// arch_get_unmapped_area_topdown() of s390 (to 6.12): file and shared mappings lie on
// 512 KiB boundaries, so that their pages have the same colour everywhere.
constexpr std::uint64_t kS390AlignBytes = std::uint64_t{0x80} << 12;
bool wants_colour(const Mm& mm, unsigned flags, const FileMapping& mapping) {
  return mm.kernel().profile().isa == arch::Isa::kS390x && mm.kernel().version() <= 6012 &&
         (mapping.file || (flags & kMapShared) != 0);
}

SysResult<VirtAddr> place_coloured(Mm& mm, VirtAddr hint, std::uint64_t length,
                                   std::uint64_t offset) {
  if (hint.v != 0 && hint_fits(mm, hint, length)) return hint;
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  const SysResult<VirtAddr> found = search(mm, length + kS390AlignBytes - page);
  if (!found.ok()) return found;
  const std::uint64_t highest = found.value().v + kS390AlignBytes - page;
  return VirtAddr{highest - ((highest - offset) & (kS390AlignBytes - 1))};
}

// __thp_get_unmapped_area() for files (5.18), where a PMD's worth of the file lies on a
// boundary; shmem does so only for huge mounts.
bool file_wants_thp_alignment(const Mm& mm, std::uint64_t length,
                              const FileMapping& mapping) {
  const arch::Geometry& geometry = mm.kernel().profile().geometry;
  if (!geometry.has_thp || mm.kernel().version() < 5018 || mapping.file->shmem())
    return false;
  const std::uint64_t size = geometry.pmd_size();
  const std::uint64_t offset = mapping.offset_pages << geometry.page_shift;
  const std::uint64_t aligned = round_up(offset, size), end = offset + length;
  return end > aligned && end - aligned >= size;
}

SysResult<VirtAddr> thp_file_area(Mm& mm, VirtAddr hint, std::uint64_t length,
                                  std::uint64_t offset) {
  const std::uint64_t pmd = mm.kernel().profile().geometry.pmd_size();
  if (hint.v != 0 && hint_fits(mm, hint, length + pmd)) return hint;
  const SysResult<VirtAddr> found = search(mm, length + pmd);
  if (!found.ok()) return place(mm, hint, length);
  const std::uint64_t up = (offset - found.value().v) & (pmd - 1);
  // 6.7: flush with what is above.
  if (up == 0 && mm.kernel().version() >= 6007) return found.value() + pmd;
  return found.value() + up;
}

// thp_get_unmapped_area(): a PMD more is searched for and the start moved up to a boundary;
// a result that is aligned as it is moves up by the whole PMD, so that it lies flush with
// what is above.  A hint counts only if the padded range fits there.
SysResult<VirtAddr> thp_get_unmapped_area(Mm& mm, VirtAddr hint, std::uint64_t length) {
  const std::uint64_t pmd = mm.kernel().profile().geometry.pmd_size();
  const std::uint64_t padded = length + pmd;
  if (padded > mm.kernel().profile().layout.task_size) return place(mm, hint, length);
  if (hint.v != 0 && hint_fits(mm, hint, padded)) return hint;
  const SysResult<VirtAddr> found = search(mm, padded);
  if (!found.ok()) return place(mm, hint, length);
  return VirtAddr{round_up(found.value().v + 1, pmd)};
}

// Are mappings like this one placed for huge pages?
bool wants_thp_alignment(const Mm& mm, VirtAddr hint, std::uint64_t length,
                         unsigned flags) {
  const arch::Geometry& geometry = mm.kernel().profile().geometry;
  if (!geometry.has_thp || (flags & kMapShared) != 0) return false;
  switch (mm.kernel().config().thp_mmap_align) {
    case ThpMmapAlign::kNo:
      return false;
    case ThpMmapAlign::kAtLeastPmd:
      return length >= geometry.pmd_size();
    case ThpMmapAlign::kMultipleOfPmd:
      return hint.v == 0 && length % geometry.pmd_size() == 0;
  }
  return false;
}

}  // namespace

VirtAddr round_hint_to_min(const Mm& mm, VirtAddr hint) {
  const arch::Profile& profile = mm.kernel().profile();
  const std::uint64_t page = profile.geometry.page_size();
  const std::uint64_t rounded = round_down(hint.v, page);
  if (rounded != 0 && rounded < profile.layout.mmap_min_addr)
    return VirtAddr{round_up(profile.layout.mmap_min_addr, page)};
  return VirtAddr{rounded};
}

SysResult<VirtAddr> get_unmapped_area(Mm& mm, VirtAddr hint, std::uint64_t length,
                                      unsigned flags, const FileMapping& mapping) {
  const arch::Profile& profile = mm.kernel().profile();
  const std::uint64_t task_size = profile.layout.task_size;
  if (length > task_size) return Errno::kENOMEM;
  if ((flags & kMapFixed) != 0) {
    if (hint.v > task_size - length) return Errno::kENOMEM;
    if (hint.v % profile.geometry.page_size() != 0) return Errno::kEINVAL;
    // Model: the caller has no CAP_SYS_RAWIO.
    if (hint.v < profile.layout.mmap_min_addr) return Errno::kEPERM;
    return hint;
  }
  const std::uint64_t offset = mapping.offset_pages << profile.geometry.page_shift;
  if (wants_colour(mm, flags, mapping)) return place_coloured(mm, hint, length, offset);
  if (mapping.file)
    return file_wants_thp_alignment(mm, length, mapping)
               ? thp_file_area(mm, hint, length, offset)
               : place(mm, hint, length);
  if (wants_thp_alignment(mm, hint, length, flags))
    return thp_get_unmapped_area(mm, hint, length);
  return place(mm, hint, length);
}

}  // namespace faultline::kernel
