// SPDX-License-Identifier: Apache-2.0
//
// mmap(2).
//
// Stands for: SYSCALL mmap, vm_mmap_pgoff(), do_mmap(), mmap_region() (mm/mmap.c,
// v4.15-6.8; mm/vma.c, v6.12-6.18).
#include "kernel_model/mm/mmap.h"

#include <algorithm>
#include <utility>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/populate.h"
#include "kernel_model/mm/unmapped_area.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

inline constexpr unsigned kMapType = 0x0f;  // MAP_SHARED, MAP_PRIVATE …

// Pages of the old mappings in `range` that are charged already.
std::uint64_t charged_pages(const Mm& mm, Range range) {
  std::uint64_t pages = 0;
  for (const Vma* vma = mm.vmas.find(range.start); vma != nullptr && vma->start < range.end;
       vma = vma->next()) {
    if ((vma->vm_flags & VM_ACCOUNT) == 0) continue;
    pages +=
        pages_of(mm, std::min(vma->end, range.end) - std::max(vma->start, range.start));
  }
  return pages;
}

// Removes what is mapped in the way and charges the new mapping; the order depends on the
// version. The charge goes into `spec`.
Errno prepare(Task& task, Mm& mm, VmaSpec& spec) {
  const bool charged = accountable_mapping(spec.vm_flags);
  const std::uint64_t pages = pages_of(mm, spec.range.bytes());
  const Vma* const first = mm.vmas.find(spec.range.start);
  const bool occupied = first != nullptr && first->start < spec.range.end;
  const bool charge_first = mm.kernel().config().mmap_charges_before_unmap;
  std::uint64_t reused = 0;
  if (charged && occupied && charge_first) {
    reused = charged_pages(mm, spec.range);
    if (pages > reused && !vm_enough_memory(mm, pages - reused)) return Errno::kENOMEM;
  }
  if (occupied) {
    const MunmapResult gone =
        do_munmap(task, mm, spec.range.start, spec.range.bytes(), MunmapLock::kKeep);
    if (gone.error != Errno::kOk) {
      if (charged && charge_first && pages > reused)
        vm_unacct_memory(mm.kernel(), pages - reused);
      return mmap_unmap_error(mm.kernel(), gone.error);
    }
  }
  if (!charged) return Errno::kOk;
  spec.vm_flags |= VM_ACCOUNT;
  if (occupied && charge_first) {
    mm.kernel().committed_pages += std::min(reused, pages);  // what do_munmap gave back
    return Errno::kOk;
  }
  return vm_enough_memory(mm, pages) ? Errno::kOk : Errno::kENOMEM;
}

// vrange_clear(), from v8 on: stale ranges of what was mapped there before.
void clear_vranges_under(Task& task, Mm& mm, Range range) {
  VrangeRoot* root = mm.vranges();
  if (root == nullptr || mm.kernel().config().vrange < VrangeVersion::k8) return;
  Vranges& shared = mm.kernel().mm_shared().vranges();
  task.charge(mm.pages().costs().vma_lookup);
  bool purged = false;
  if (!shared.alloc_node(task)) return;
  root->lock().lock(task);
  const bool used = root->remove(task, range, purged);
  root->lock().unlock(task);
  if (!used) shared.free_node(task);
}

Errno mmap_region(Task& task, Mm& mm, VmaSpec& spec) {
  const Scope scope(task, centre::kMmapRegion);
  if (const Errno error = prepare(task, mm, spec); error != Errno::kOk) return error;
  if ((spec.vm_flags & VM_SHARED) != 0 && !spec.file) {
    spec.file =
        shmem_zero_setup(mm, spec.range.bytes(), (spec.vm_flags & VM_NORESERVE) != 0);
    if (!spec.file) return Errno::kENOMEM;
    spec.name = spec.file->name();
  }
  if (vma_merge_mmap(task, mm, spec) == nullptr) vma_link(task, mm, spec);
  clear_vranges_under(task, mm, spec.range);
  const std::uint64_t pages = pages_of(mm, spec.range.bytes());
  vm_stat_account(mm, spec.vm_flags, static_cast<std::int64_t>(pages));
  if ((spec.vm_flags & VM_LOCKED) != 0) mm.locked_vm += pages;
  return Errno::kOk;
}

// What of `flags` decides the mapping's kind: VM_* and page offset.
Errno apply_type(const Mm& mm, unsigned flags, const FileMapping& mapping, VmaSpec& spec) {
  const bool shared = (flags & kMapType) == kMapShared;
  if (mapping.file) {
    spec.file = mapping.file;
    spec.name = mapping.file->name();
  }
  spec.anonymous = !shared && !mapping.file;
  switch (flags & kMapType) {
    case kMapShared:
      if ((spec.vm_flags & VM_GROWSDOWN) != 0) return Errno::kEINVAL;
      spec.vm_flags |= VM_SHARED | VM_MAYSHARE;
      spec.vm_pgoff = mapping.offset_pages;
      break;
    case kMapPrivate:
      if (mapping.file && (spec.vm_flags & VM_GROWSDOWN) != 0) return Errno::kEINVAL;
      spec.vm_pgoff =
          mapping.file ? mapping.offset_pages : pages_of(mm, spec.range.start.v);
      break;
    default:
      return Errno::kEINVAL;
  }
  constexpr unsigned kOvercommitNever = 2;
  if ((flags & kMapNoreserve) != 0 &&
      mm.kernel().config().overcommit_memory != kOvercommitNever)
    spec.vm_flags |= VM_NORESERVE;
  return Errno::kOk;
}

SysResult<VirtAddr> do_mmap(Task& task, Mm& mm, VirtAddr hint, std::uint64_t length,
                            unsigned prot, unsigned flags, const FileMapping& mapping) {
  const Scope scope(task, centre::kDoMmap);
  if (length == 0) return Errno::kEINVAL;
  if (mm.kernel().version() < 4017) flags &= ~unsigned{kMapFixedNoreplace};  // a hint there
  if ((flags & kMapFixedNoreplace) != 0) flags |= kMapFixed;
  if ((flags & kMapFixed) == 0) hint = round_hint_to_min(mm, hint);
  length = page_align(mm, length);
  if (length == 0) return Errno::kENOMEM;
  if (mm.vmas.size() > mm.kernel().config().max_map_count) return Errno::kENOMEM;

  task.charge(mm.kernel().profile().costs.mmap_base);
  const SysResult<VirtAddr> place = get_unmapped_area(mm, hint, length, flags, mapping);
  if (!place.ok()) return place;
  VmaSpec spec;
  spec.range = {place.value(), place.value() + length};
  if ((flags & kMapFixedNoreplace) != 0) {
    const Vma* const there = mm.vmas.find(spec.range.start);
    if (there != nullptr && there->start < spec.range.end) return Errno::kEEXIST;
  }
  spec.vm_flags = calc_vm_flags(mm, prot, flags);
  if (const Errno error = apply_type(mm, flags, mapping, spec); error != Errno::kOk)
    return error;
  if (const Errno error = mmap_region(task, mm, spec); error != Errno::kOk) return error;
  return spec.range.start;
}

bool wants_populate(const Mm& mm, VirtAddr mapped, unsigned flags) {
  if ((flags & (kMapPopulate | kMapNonblock)) == kMapPopulate) return true;
  return (mm.vmas.at(mapped)->vm_flags & VM_LOCKED) != 0;
}

}  // namespace

Errno mmap_unmap_error(const Kernel& kernel, Errno error) {
  constexpr unsigned kAnswered = 6012;
  return kernel.version() < kAnswered ? Errno::kENOMEM : error;
}

std::uint64_t calc_vm_flags(const Mm& mm, unsigned prot, unsigned flags) {
  std::uint64_t vm_flags =
      (prot & kVmAccessFlags) | mm.def_flags | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC;
  if ((flags & kMapGrowsdown) != 0) vm_flags |= VM_GROWSDOWN;
  if ((flags & kMapLocked) != 0) vm_flags |= VM_LOCKED;
  if ((flags & kMapStack) != 0 && mm.kernel().config().map_stack_nohugepage)
    vm_flags |= VM_NOHUGEPAGE;
  return vm_flags;
}

SysResult<VirtAddr> sys_mmap(Task& task, Process& process, VirtAddr hint,
                             std::uint64_t length, unsigned prot, unsigned flags) {
  return sys_mmap_file(task, process, hint, length, prot, flags, nullptr, 0);
}

SysResult<VirtAddr> sys_mmap_file(Task& task, Process& process, VirtAddr hint,
                                  std::uint64_t length, unsigned prot, unsigned flags,
                                  std::shared_ptr<File> file, std::uint64_t offset) {
  Kernel& kernel = process.kernel();
  Mm& mm = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysMmap);
  if (!page_aligned(mm, VirtAddr{offset})) return Errno::kEINVAL;
  const FileMapping mapping{std::move(file), pages_of(mm, offset)};
  const Scope pgoff(task, centre::kVmMmapPgoff);
  mm.mmap_write_lock(task);
  const bool hugetlb = (flags & kMapHugetlb) != 0 && !mapping.file;
  const SysResult<VirtAddr> result =
      hugetlb ? mmap_hugetlb(task, mm, hint, length, prot, flags)
              : do_mmap(task, mm, hint, length, prot, flags, mapping);
  const bool populate = result.ok() && wants_populate(mm, result.value(), flags);
  mm.mmap_write_unlock(task);
  // What can't be had is left to faults: the mapping stands.
  if (populate)
    static_cast<void>(
        mm_populate(task, mm, {result.value(), result.value() + page_align(mm, length)}));
  return result;
}

}  // namespace faultline::kernel
