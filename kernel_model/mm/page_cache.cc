// SPDX-License-Identifier: Apache-2.0
//
// Files and their cached pages: see page_cache.h.
#include "kernel_model/mm/page_cache.h"

#include <algorithm>
#include <utility>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kShmemGetPage{"shmem_get_folio_gfp", true};
constexpr Centre kFilemapAdd{"filemap_add_folio", true};
constexpr Centre kGenericPerformWrite{"generic_perform_write", true};
constexpr Centre kPageCacheRa{"page_cache_ra_unbounded", true};

}  // namespace

File::File(Kernel& kernel, FileKind kind, std::string name, std::uint64_t bytes)
    : kernel_(kernel),
      kind_(kind),
      name_(std::move(name)),
      pages_((bytes + kernel.profile().geometry.page_size() - 1) >>
             kernel.profile().geometry.page_shift),
      id_(kernel.mm_shared().files.insert(*this)) {}

File::~File() {
  remove_range(0, UINT64_MAX, 0);
  vm_unacct_memory(kernel_, committed);
  kernel_.mm_shared().files.erase(id_);
}

std::optional<Pfn> File::find(std::uint64_t index) const {
  const auto it = cache_.find(index);
  return it == cache_.end() ? std::nullopt : std::optional(it->second);
}

void File::add(std::uint64_t index, Pfn page) {
  FAULTLINE_CHECK(cache_.emplace(index, page).second);
  ++kernel_.vmstat().nr_file_pages;
  if (shmem()) ++kernel_.vmstat().nr_shmem;
}

void File::remove(std::uint64_t index, int cpu) {
  const auto it = cache_.find(index);
  FAULTLINE_CHECK(it != cache_.end());
  const Pfn page = it->second;
  cache_.erase(it);
  --kernel_.vmstat().nr_file_pages;
  if (shmem()) --kernel_.vmstat().nr_shmem;
  put_page(kernel_, page, cpu);
}

void File::remove_range(std::uint64_t first, std::uint64_t end, int cpu) {
  for (auto it = cache_.lower_bound(first); it != cache_.end() && it->first < end;
       it = cache_.lower_bound(first))
    remove(it->first, cpu);
}

std::optional<Pfn> add_to_page_cache(Task& task, Kernel& kernel, File& file,
                                     std::uint64_t index) {
  const Scope scope(task, file.shmem() ? kShmemGetPage : kFilemapAdd);
  task.charge(kernel.profile().costs.page_alloc);
  task.sync();
  AllocRequest request;
  request.preferred_node = task.node();
  const auto page = kernel.phys().alloc_pages(request, task.cpu());
  if (!page) return std::nullopt;
  if (file.shmem()) clear_pages(task, kernel, *page, kernel.profile().geometry.page_size());
  task.sync();
  if (const auto other = file.find(index)) {  // somebody was faster
    kernel.phys().free_pages(*page, 0, task.cpu());
    return other;
  }
  Page& frame = kernel.phys().page(*page);
  frame.refcount = 1;
  frame.mapcount = 0;
  frame.order = 0;
  frame.flags = Page::kLru;
  if (file.shmem()) frame.flags |= Page::kSwapbacked;
  kernel.mm_shared().lrus.add(frame, *page);
  kernel.mm_shared().lrus.note_file_index(*page, file.id(), index);
  file.add(index, *page);
  return page;
}

SysResult<std::uint64_t> sys_pwrite(Task& task, Process& process, File& file,
                                    std::uint64_t offset, std::uint64_t length) {
  Kernel& kernel = process.kernel();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, kGenericPerformWrite);
  const unsigned shift = kernel.profile().geometry.page_shift;
  std::uint64_t done = 0;
  while (done < length) {
    const std::uint64_t at = offset + done;
    const std::uint64_t index = at >> shift;
    const std::uint64_t part = std::min(length - done, ((index + 1) << shift) - at);
    auto page = file.find(index);
    if (!page) page = add_to_page_cache(task, kernel, file, index);
    if (!page) return done > 0 ? SysResult<std::uint64_t>(done) : Errno::kENOMEM;
    file.grow_to(index + 1);
    kernel.phys().page(*page).flags |= Page::kDirty;
    stream_copy(task, kernel, *page, part);
    done += part;
  }
  return done;
}

// Model: one read for all of it; pages join the cache when it is over.
bool filemap_read(Task& task, Kernel& kernel, File& file, std::uint64_t index) {
  const Scope scope(task, kPageCacheRa);
  const std::uint64_t count = std::max<std::uint64_t>(
      kernel.config().read_ahead_bytes >> kernel.profile().geometry.page_shift, 1);
  // Sequential access reads on; anything else reads around.
  const bool sequential = index != 0 && index == file.next_read;
  const std::uint64_t before = sequential ? 0 : count / 2;
  const std::uint64_t first = index > before ? index - before : 0;
  const std::uint64_t end = std::min(first + count, file.size_pages());
  task.sync();
  task.sleep(kernel.config().disk_read +
             stream_time((end - first) << kernel.profile().geometry.page_shift,
                         kernel.profile().costs.copy_rate));
  for (std::uint64_t i = first; i < end; ++i)
    if (!file.find(i) && !add_to_page_cache(task, kernel, file, i)) return i > index;
  file.next_read = end;
  return true;
}

void page_add_file_rmap(Kernel& kernel, Pfn pfn) {
  Page& page = kernel.phys().page(pfn);
  ++page.refcount;
  if (++page.mapcount == 1) ++kernel.vmstat().nr_mapped;
}

void page_remove_file_rmap(Kernel& kernel, Pfn pfn) {
  if (--kernel.phys().page(pfn).mapcount == 0) --kernel.vmstat().nr_mapped;
}

bool is_shmem_page(Kernel& kernel, Pfn pfn) {
  return (kernel.phys().page(pfn).flags & Page::kSwapbacked) != 0;
}

void unmap_mapping_range(Task& task, Kernel& kernel, File& file, std::uint64_t first,
                         std::uint64_t end) {
  const unsigned shift = kernel.profile().geometry.page_shift;
  for (const auto& process : kernel.processes()) {
    Mm& mm = process->mm();
    for (Vma& vma : mm.vmas) {
      const std::uint64_t vma_end = vma.vm_pgoff + (vma.bytes() >> shift);
      if (vma.file.get() != &file || vma_end <= first || vma.vm_pgoff >= end) continue;
      const std::uint64_t from = std::max(first, vma.vm_pgoff) - vma.vm_pgoff;
      const std::uint64_t to = std::min(end, vma_end) - vma.vm_pgoff;
      const Range part{vma.start + (from << shift), vma.start + (to << shift)};
      process->discarded(part);
      mm.pages().zap_page_range(task, vma, part, ZapFor::kDontneed);
    }
  }
}

void file_vm_op_close(Task& task, Mm& mm, Vma& vma) {
  if (!vma.file) return;
  if (vma.file.use_count() == 1) {
    task.charge(mm.kernel().profile().costs.page_free *
                static_cast<std::int64_t>(vma.file->cached().size()));
    task.sync();
    vma.file->remove_range(0, UINT64_MAX, task.cpu());
  }
  vma.file.reset();
}

FileRef shmem_zero_setup(Mm& mm, std::uint64_t bytes, bool noreserve) {
  const std::uint64_t pages = pages_of(mm, bytes);
  if (!noreserve && !vm_enough_memory(mm, pages)) return nullptr;
  auto file =
      std::make_shared<File>(mm.kernel(), FileKind::kShmem, "/dev/zero (deleted)", bytes);
  file->committed = noreserve ? 0 : pages;
  return file;
}

}  // namespace faultline::kernel
