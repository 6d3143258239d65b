// SPDX-License-Identifier: Apache-2.0
//
// MAP_HUGETLB mappings: making, splitting, unmapping, forking them.
#include "kernel_model/mm/hugetlb.h"

#include <algorithm>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/unmapped_area.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

constexpr Centre kUnmapHugepageRange{"unmap_hugepage_range", true};

std::uint64_t pages_in(const HugetlbPool& pool, Range range) {
  return range.bytes() / pool.size;
}

// The page of a file that the VMA maps at `at`.
std::uint64_t index_of(const Vma& vma, const HugetlbPool& pool, VirtAddr at) {
  return (at - vma.start) / pool.size + (vma.vm_pgoff >> pool.order);
}

// hugetlb_get_unmapped_area(): as any other mapping, but on a boundary of the page.  On a
// hash MMU, pages of one size keep to slices of their own, 1 TiB each.
SysResult<VirtAddr> find_area(Mm& mm, const HugetlbPool& pool, VirtAddr hint,
                              std::uint64_t length, unsigned flags) {
  const arch::Profile& profile = mm.kernel().profile();
  const std::uint64_t mask = pool.size - 1;
  if ((flags & kMapFixed) != 0) {
    if ((hint.v & mask) != 0) return Errno::kEINVAL;
    return get_unmapped_area(mm, hint, length, flags);
  }
  if (hint.v != 0) {
    const VirtAddr rounded{(hint.v + mask) & ~mask};
    const Vma* next = mm.vmas.find(rounded);
    if (rounded.v <= profile.layout.task_size - length &&
        (next == nullptr || rounded.v + length <= mm.vmas.start_gap(*next)))
      return rounded;
  }
  constexpr std::uint64_t kSlice = std::uint64_t{1} << 40;
  VirtAddr top = mm.mmap_base;
  if (profile.isa == arch::Isa::kPpc64Hash) top.v &= ~(kSlice - 1);
  const std::uint64_t padded = length + mask + 1 - profile.geometry.page_size();
  const VirtAddr low{std::max(profile.geometry.page_size(), profile.layout.mmap_min_addr)};
  const auto gap = mm.vmas.highest_gap(padded, {low, top});
  if (!gap) return Errno::kENOMEM;
  return VirtAddr{(gap->v + padded - length) & ~mask};
}

// hugetlbfs_file_mmap(), hugetlb_reserve_pages().
SysResult<VirtAddr> map_range(Task& task, Mm& mm, HugetlbPool& pool, Range range,
                              unsigned prot, unsigned flags) {
  HugetlbPools& pools = mm.kernel().hugetlb();
  auto mapping = std::make_shared<HugetlbMapping>(
      HugetlbMapping{pool, pools.next_mapping_id(), false, {}, {}});
  constexpr unsigned kOvercommitNever = 2;
  const bool noreserve = (flags & kMapNoreserve) != 0 &&
                         mm.kernel().config().overcommit_memory != kOvercommitNever;
  if (!noreserve) {
    if (!pools.reserve(pool, pages_in(pool, range))) return Errno::kENOMEM;
    mapping->reserves = true;
  }
  VmaSpec spec;
  spec.range = range;
  spec.vm_flags = calc_vm_flags(mm, prot, flags) | VM_HUGETLB | VM_DONTEXPAND;
  if (noreserve) spec.vm_flags |= VM_NORESERVE;
  if ((flags & kMapShared) != 0) spec.vm_flags |= VM_SHARED | VM_MAYSHARE;
  spec.anonymous = false;
  spec.name = "/anon_hugepage (deleted)";
  spec.hugetlb = std::move(mapping);
  vma_link(task, mm, spec);
  vm_stat_account(mm, spec.vm_flags,
                  static_cast<std::int64_t>(pages_of(mm, range.bytes())));
  return range.start;
}

}  // namespace

SysResult<VirtAddr> mmap_hugetlb(Task& task, Mm& mm, VirtAddr hint, std::uint64_t length,
                                 unsigned prot, unsigned flags) {
  HugetlbPool* pool = mm.kernel().hugetlb().hstate_sizelog(flags >> kMapHugeShift & 0x3f);
  if (pool == nullptr) return Errno::kEINVAL;
  const std::uint64_t rounded = (length + pool->size - 1) & ~(pool->size - 1);
  if (length == 0) return Errno::kEINVAL;
  if (rounded == 0) return Errno::kEINVAL;  // it wraps before anybody looks
  if (rounded > mm.kernel().profile().layout.task_size) return Errno::kENOMEM;
  if (mm.vmas.size() > mm.kernel().config().max_map_count) return Errno::kENOMEM;
  task.charge(mm.kernel().profile().costs.mmap_base);
  if ((flags & kMapFixedNoreplace) != 0) flags |= kMapFixed;
  const SysResult<VirtAddr> place = find_area(mm, *pool, hint, rounded, flags);
  if (!place.ok()) return place;
  const Range range{place.value(), place.value() + rounded};
  const Vma* there = mm.vmas.find(range.start);
  if (there != nullptr && there->start < range.end) {
    if ((flags & kMapFixedNoreplace) != 0) return Errno::kEEXIST;
    const Errno error = do_munmap(task, mm, range.start, rounded, MunmapLock::kKeep).error;
    if (error != Errno::kOk) return mmap_unmap_error(mm.kernel(), error);
  }
  return map_range(task, mm, *pool, range, prot, flags);
}

bool hugetlb_may_split(const Vma& vma, VirtAddr at) {
  return !vma.hugetlb || (at.v & (vma.hugetlb->pool.size - 1)) == 0;
}

Errno hugetlb_check_split(Task& task, Mm& mm, Vma& vma, Range part) {
  const bool at_start = part.start > vma.start;
  if (at_start && !hugetlb_may_split(vma, part.start)) return Errno::kEINVAL;
  if (part.end >= vma.end || hugetlb_may_split(vma, part.end)) return Errno::kOk;
  if (at_start) split_vma(task, mm, vma, part.start);
  return Errno::kEINVAL;
}

void hugetlb_vm_op_close(Mm& mm, Vma& vma) {
  if (!vma.hugetlb) return;
  HugetlbMapping& mapping = *vma.hugetlb;
  HugetlbPools& pools = mm.kernel().hugetlb();
  if (mapping.reserves) {
    const std::uint64_t first = index_of(vma, mapping.pool, vma.start);
    const std::uint64_t end = first + pages_in(mapping.pool, vma.range());
    std::uint64_t unused = end - first;
    for (auto it = mapping.taken.lower_bound(first); it != mapping.taken.end() && *it < end;
         ++it)
      --unused;
    pools.unreserve(mapping.pool, unused);
  }
  if (vma.hugetlb.use_count() == 1)
    for (const auto& [index, head] : mapping.cache)
      if (--mm.kernel().phys().page(head).refcount == 0) pools.free(mapping.pool, head);
  vma.hugetlb.reset();
}

void unmap_hugepage_range(Task& task, PageTables& pages, Vma& vma, Range range) {
  const Scope scope(task, kUnmapHugepageRange);
  task.sync();
  HugetlbPool& pool = vma.hugetlb->pool;
  const HugetlbEntries entries(pages, pool);
  std::vector<Pfn> gone;
  VirtAddr at = range.start;
  while ((at = pages.tree().next_in_use(at, range.end, entries.level())) < range.end) {
    at.v &= ~(pool.size - 1);
    Table& table = *entries.table(at);
    Ptl lock(task, pages, entries.lock_page(table));
    const Pte entry = entries.get(table, at);
    if (!entry.none()) {
      gone.push_back(entry.pfn());
      entries.clear(table, at);
      task.charge(pages.costs().pmd_set);
    }
    at = at + pool.size;
  }
  if (gone.empty()) return;
  pages.mm().process().access_caches.forget();
  pages.mm().hugetlb_bytes -= gone.size() * pool.size;
  flush_tlb_range(task, pages, range, pool.size);
  for (const Pfn head : gone) {
    Page& page = pages.kernel().phys().page(head);
    --page.mapcount;
    if (--page.refcount == 0) pages.kernel().hugetlb().free(pool, head);
  }
}

Errno hugetlb_dontneed(Task& task, Mm& mm, Vma& vma, Range range) {
  const std::uint64_t mask = vma.hugetlb->pool.size - 1;
  if (mm.kernel().version() < 5'018 || (range.start.v & mask) != 0) return Errno::kEINVAL;
  range.end.v &= ~mask;
  if (range.empty()) return Errno::kOk;
  mm.process().discarded(range);
  unmap_hugepage_range(task, mm.pages(), vma, range);
  return Errno::kOk;
}

std::shared_ptr<HugetlbMapping> hugetlb_dup_mapping(const Vma& vma) {
  if (!vma.hugetlb || (vma.vm_flags & VM_SHARED) != 0) return vma.hugetlb;
  return std::make_shared<HugetlbMapping>(
      HugetlbMapping{vma.hugetlb->pool, vma.hugetlb->id, false, {}, {}});
}

bool copy_hugetlb_page_range(Task& task, PageTables& from, PageTables& to, Vma& vma) {
  HugetlbPool& pool = vma.hugetlb->pool;
  const HugetlbEntries source(from, pool), target(to, pool);
  const bool cow = (vma.vm_flags & VM_SHARED) == 0;
  VirtAddr at = vma.start;
  while ((at = from.tree().next_in_use(at, vma.end, source.level())) < vma.end) {
    Table* child = target.alloc_table(task, at);
    if (child == nullptr) return false;
    Table& table = *source.table(at);
    Ptl child_lock(task, to, target.lock_page(*child));
    Ptl lock(task, from, source.lock_page(table));
    const Pte entry = source.get(table, at);
    if (!entry.none()) {
      const std::uint64_t bits =
          entry.raw() & (Pte::kPresent | Pte::kUser | Pte::kWrite | Pte::kDirty);
      if (cow) source.change(table, at, 0, Pte::kWrite);
      target.set(*child, at, entry.pfn(), cow ? bits & ~std::uint64_t{Pte::kWrite} : bits);
      Page& page = from.kernel().phys().page(entry.pfn());
      ++page.refcount;
      ++page.mapcount;
      to.mm().hugetlb_bytes += pool.size;
      task.charge(from.costs().pmd_set);
    }
    at = at + pool.size;
  }
  if (cow) from.mm().process().access_caches.forget();
  return true;
}

HugetlbEntries::HugetlbEntries(PageTables& pages, const HugetlbPool& pool) : pages_(pages) {
  const arch::Geometry& g = pages.geometry();
  const bool pmd_level = pool.size >= g.pmd_size();
  const std::uint64_t entry = pmd_level ? g.pmd_size() : g.page_size();
  level_ = pmd_level ? pages.tree().pmd_level() : pages.tree().pte_level();
  count_ = pool.size / entry;
  step_ = entry >> g.page_shift;
  pmd_sized_ = pool.size == g.pmd_size();
}

// Up to 6.1 only pages of the PMD's size have a lock of their own.
TablePage* HugetlbEntries::lock_page(const Table& table) const {
  if (pmd_sized_) return pages_.pmd_lock_page(table);
  if (pages_.kernel().version() <= 6'001) return nullptr;
  return level_ == pages_.tree().pmd_level() ? pages_.pmd_lock_page(table) : table.page;
}

void HugetlbEntries::set(Table& table, VirtAddr head, Pfn pfn, std::uint64_t bits) const {
  const std::uint64_t first = pages_.tree().shape(level_).index(head);
  for (std::uint64_t i = 0; i < count_; ++i)
    pages_.tree().set_index(
        table, first + i,
        Pte::leaf({static_cast<std::uint32_t>(pfn.v + i * step_)}, bits | Pte::kHugetlb));
}

void HugetlbEntries::change(Table& table, VirtAddr head, std::uint64_t with,
                            std::uint64_t without) const {
  const std::uint64_t first = pages_.tree().shape(level_).index(head);
  for (std::uint64_t i = 0; i < count_; ++i)
    pages_.tree().set_index(table, first + i,
                            table.entry[first + i].without(without).with(with));
}

void HugetlbEntries::clear(Table& table, VirtAddr head) const {
  const std::uint64_t first = pages_.tree().shape(level_).index(head);
  for (std::uint64_t i = 0; i < count_; ++i)
    pages_.tree().set_index(table, first + i, Pte{});
}

}  // namespace faultline::kernel
