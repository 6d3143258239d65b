// SPDX-License-Identifier: Apache-2.0
//
// Files and their cached pages, and the mappings of them.
//
// A file is what its pages are: the cache holds one reference of each, every mapping one
// more.  A file that nobody maps or has open is gone, with its pages.  Shared anonymous
// memory is such a file without a name (shmem).
//
// Stands for: struct address_space, mm/filemap.c, mm/shmem.c, the file half of mm/rmap.c
// (v4.15-6.18).  Model: base pages only; a write to a regular file never waits for its
// device; no reflinks, no truncation while mapped.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;
class PageTables;
struct Fault;
struct Vma;
enum class FaultResult : std::uint8_t;

// kShmem: tmpfs and shared anonymous memory: pages that only swap can hold otherwise.
enum class FileKind : std::uint8_t { kRegular, kShmem };

class File {
 public:
  File(Kernel& kernel, FileKind kind, std::string name, std::uint64_t bytes);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] FileKind kind() const { return kind_; }
  [[nodiscard]] bool shmem() const { return kind_ == FileKind::kShmem; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t id() const { return id_; }  // of this kernel's files, from 1
  [[nodiscard]] std::uint64_t size_pages() const { return pages_; }
  void grow_to(std::uint64_t pages) {
    if (pages > pages_) pages_ = pages;
  }

  [[nodiscard]] std::optional<Pfn> find(std::uint64_t index) const;
  [[nodiscard]] const std::map<std::uint64_t, Pfn>& cached() const { return cache_; }
  // filemap_add_folio(): takes over the page's one reference.
  void add(std::uint64_t index, Pfn page);
  // The page leaves the cache, which puts its reference.
  void remove(std::uint64_t index, int cpu);
  // Compaction: the cached page of that index is another frame now.
  void replace(std::uint64_t index, Pfn page) { cache_.at(index) = page; }
  // MADV_REMOVE, truncation, the file's end: all cached pages of [first, end) go.
  void remove_range(std::uint64_t first, std::uint64_t end, int cpu);

  std::uint64_t committed = 0;  // pages charged for a shared anonymous mapping
  std::uint64_t next_read = 0;  // where the last read around a miss ended

 private:
  Kernel& kernel_;
  FileKind kind_;
  std::string name_;
  std::uint64_t pages_;
  std::uint32_t id_;
  std::map<std::uint64_t, Pfn> cache_;
};
using FileRef = std::shared_ptr<File>;

// The files of one kernel, by id.
class FileTable {
 public:
  std::uint32_t insert(File& file) {
    files_[++last_] = &file;
    return last_;
  }
  void erase(std::uint32_t id) { files_.erase(id); }
  [[nodiscard]] File* find(std::uint32_t id) const {
    const auto it = files_.find(id);
    return it == files_.end() ? nullptr : it->second;
  }
  [[nodiscard]] const std::map<std::uint32_t, File*>& all() const { return files_; }

 private:
  std::map<std::uint32_t, File*> files_;
  std::uint32_t last_ = 0;
};

// A new page in the cache, uncharged but for its allocation; shmem's is cleared.  Nothing:
// no memory.
[[nodiscard]] std::optional<Pfn> add_to_page_cache(Task& task, Kernel& kernel, File& file,
                                                   std::uint64_t index);
// page_cache_sync_ra(), do_sync_mmap_readahead(): reads `index` and what lies around it
// from the device.  No lock is held.  False: no memory.
[[nodiscard]] bool filemap_read(Task& task, Kernel& kernel, File& file,
                                std::uint64_t index);

// --- file_fault.cc
// do_fault(): the entry of a file mapping is none.
FaultResult do_fault(Fault& fault);

// A mapping by a PTE comes or goes.
void page_add_file_rmap(Kernel& kernel, Pfn pfn);
// The reference stays; put_page() is the caller's.
void page_remove_file_rmap(Kernel& kernel, Pfn pfn);
// Which counter of the mm a file's page is in: shmem or file.
[[nodiscard]] bool is_shmem_page(Kernel& kernel, Pfn pfn);

// unmap_mapping_range(): nobody maps the pages [first, end) of the file any more.
void unmap_mapping_range(Task& task, Kernel& kernel, File& file, std::uint64_t first,
                         std::uint64_t end);
// The last mapping of a file is about to go: its pages go with it, charged.
void file_vm_op_close(Task& task, Mm& mm, Vma& vma);
// shmem_zero_setup(): shared anonymous memory; null: over the commit limit.
[[nodiscard]] FileRef shmem_zero_setup(Mm& mm, std::uint64_t bytes, bool noreserve);

}  // namespace faultline::kernel
