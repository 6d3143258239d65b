// SPDX-License-Identifier: Apache-2.0
//
// Faults in file mappings.
//
// A read maps what of the file is cached around it, too (fault-around), so that a scan of a
// cached file faults once in 64 KiB.  A write to a private mapping copies at once.  A page
// that isn't cached is read with no lock held, and the fault starts anew.
//
// Stands for: do_fault(), do_read_fault(), do_cow_fault(), do_shared_fault(),
// do_fault_around() (mm/memory.c), filemap_map_pages(), filemap_fault() (mm/filemap.c),
// shmem_fault() (mm/shmem.c), v4.15-6.18.
#include <algorithm>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/rmap.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDoFault{"do_fault", true};
constexpr Centre kFilemapMapPages{"filemap_map_pages", true};
constexpr Centre kPageMkwrite{"do_page_mkwrite", true};

class FileFault {
 public:
  FileFault(Fault& fault, Table& table)
      : fault_(fault),
        table_(table),
        vma_(fault.vma),
        tree_(fault.pages.tree()),
        page_shift_(fault.pages.geometry().page_shift) {}

  FaultResult handle() {
    if (!vma_.file) return static_text();
    if (!fault_.write()) return do_read_fault();
    return shared() ? do_shared_fault() : do_cow_fault();
  }

 private:
  [[nodiscard]] bool shared() const { return (vma_.vm_flags & VM_SHARED) != 0; }
  [[nodiscard]] std::uint64_t index_at(VirtAddr at) const {
    return vma_.linear_page_index(at, page_shift_);
  }

  // Model: the program's own text and data are always cached, outside of the memory that
  // the model manages.
  FaultResult static_text() {
    if (fault_.write()) return wp_page_copy(fault_, table_, Pte{}, std::nullopt);
    Ptl lock(fault_.task, fault_.pages, table_.page);
    if (still_none())
      set(fault_.at, Pte::leaf(Pfn{0}, fault_.page_bits() | Pte::kFile), RssKind::kFile);
    return FaultResult::kDone;
  }

  FaultResult do_read_fault() {
    if (around() > 1 && do_fault_around()) return FaultResult::kDone;
    Pfn page;
    if (const FaultResult r = get_page(page); r != FaultResult::kDone) return r;
    Ptl lock(fault_.task, fault_.pages, table_.page);
    if (still_none()) map(fault_.at, page, fault_.page_bits());
    return FaultResult::kDone;
  }

  FaultResult do_shared_fault() {
    Pfn page;
    if (const FaultResult r = get_page(page); r != FaultResult::kDone) return r;
    if (!vma_.file->shmem()) fault_.task.charge(kPageMkwrite, fault_.pages.costs().pte_set);
    Ptl lock(fault_.task, fault_.pages, table_.page);
    if (still_none()) map(fault_.at, page, fault_.page_bits() | Pte::kWrite);
    return FaultResult::kDone;
  }

  // The new page is the mm's own from the start.
  FaultResult do_cow_fault() {
    Pfn page;
    if (const FaultResult r = get_page(page); r != FaultResult::kDone) return r;
    return wp_page_copy(fault_, table_, Pte{}, page);
  }

  // __do_fault(): the file's page, from the cache, fresh, or (kIo) from its device.
  FaultResult get_page(Pfn& page) {
    File& file = *vma_.file;
    const std::uint64_t index = index_at(fault_.at);
    fault_.task.sync();
    if (index >= file.size_pages()) return FaultResult::kSigbus;
    if (const auto cached = file.find(index)) {
      page = *cached;
      return FaultResult::kDone;
    }
    if (!file.shmem()) {
      fault_.io = {.file = vma_.file, .index = index};
      return FaultResult::kIo;
    }
    const auto fresh = add_to_page_cache(fault_.task, fault_.kernel, file, index);
    if (!fresh) return FaultResult::kOom;
    page = *fresh;
    return FaultResult::kDone;
  }

  [[nodiscard]] std::uint64_t around() const {
    return fault_.kernel.config().fault_around_bytes >> page_shift_;
  }

  // The window: aligned to its size, cut to the VMA and the page table.
  [[nodiscard]] Range window() const {
    const std::uint64_t bytes = around() << page_shift_;
    const VirtAddr start = std::max(VirtAddr{fault_.at.v & ~(bytes - 1)}, vma_.start);
    const VirtAddr end = std::min(vma_.end, fault_.pages.pmd_range(start).end);
    return {start, std::min(end, start + bytes)};
  }

  // True if the faulting page was among those mapped.
  bool do_fault_around() {
    const Scope scope(fault_.task, kFilemapMapPages);
    Ptl lock(fault_.task, fault_.pages, table_.page);
    const Range part = window();
    if (tree_.find_pte_table(fault_.at) != &table_) return true;
    bool mapped = false;
    const std::uint64_t end = index_at(part.end);
    const auto& cache = vma_.file->cached();
    for (auto it = cache.lower_bound(index_at(part.start));
         it != cache.end() && it->first < end; ++it) {
      const VirtAddr at = vma_.start + ((it->first - vma_.vm_pgoff) << page_shift_);
      if (!tree_.get(table_, at).none()) continue;
      map(at, it->second, Pte::kPresent | Pte::kUser | Pte::kYoung);
      mapped |= fault_.pages.page_range(fault_.at).start == at;
    }
    return mapped;
  }

  [[nodiscard]] bool still_none() const {
    return tree_.find_pte_table(fault_.at) == &table_ &&
           tree_.get(table_, fault_.at).none();
  }

  // do_set_pte().  A shared mapping that nobody has to be told of writes to (shmem:
  // vma_wants_writenotify()) is writable from the start.
  void map(VirtAddr at, Pfn page, std::uint64_t bits) {
    if (shared() && vma_.file->shmem() && (vma_.vm_flags & VM_WRITE) != 0)
      bits |= Pte::kWrite;
    page_add_file_rmap(fault_.kernel, page);
    set(at, Pte::leaf(page, bits | Pte::kFile),
        is_shmem_page(fault_.kernel, page) ? RssKind::kShmem : RssKind::kFile);
  }

  void set(VirtAddr at, Pte entry, RssKind kind) {
    tree_.set(table_, at, entry);
    fault_.task.charge(fault_.pages.costs().pte_set);
    fault_.pages.rss_stat().add_fast(fault_.task, kind, 1);
  }

  Fault& fault_;
  Table& table_;
  Vma& vma_;
  PageTableTree& tree_;
  unsigned page_shift_;
};

}  // namespace

FaultResult do_fault(Fault& fault) {
  Scope scope(fault.task, kDoFault);
  Table* table =
      fault.pages.alloc_tables_to(fault.task, fault.at, fault.pages.tree().pte_level());
  if (table == nullptr) return FaultResult::kOom;
  return FileFault(fault, *table).handle();
}

}  // namespace faultline::kernel
