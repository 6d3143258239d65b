// SPDX-License-Identifier: Apache-2.0
//
// The modelled mmprobe: a process on a modelled kernel that does what the real probe did,
// in its words, and notes the counters after each phase.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/khugepaged.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/types.h"
#include "sim/engine.h"
#include "tests/real_kernels/probe_heap.h"
#include "tests/real_kernels/rows.h"

namespace faultline::real_kernels {

using Counters = std::map<std::string, std::int64_t>;  // the probe's names

class Probe {
 public:
  Probe(const DataFile& file, const Case& test);
  ~Probe();

  // Runs `body` as the probe's main thread and answers the changes in each phase.
  std::vector<Row> run(const std::function<void(Probe&)>& body);

  // What the probe's tests are written with.
  static constexpr std::uint64_t kMiB = 1024 * 1024, kGiB = 1024 * kMiB;
  std::uint64_t P = 0, H = 0;  // base page, PMD huge page (0: none)
  std::uint64_t U = 0;         // the unit where a huge page is wanted
  static constexpr std::uint64_t K = 65536;
  using Addr = kernel::VirtAddr;

  void mark(const std::string& phase);
  Addr map(std::uint64_t bytes, unsigned prot, unsigned flags);
  Addr mapal(std::uint64_t bytes, std::uint64_t align);
  // A new file in /tmp, written in pieces: tmpfs in the guests, ext4 natively.
  std::shared_ptr<kernel::File> write_file(std::uint64_t bytes, std::uint64_t piece);
  Addr map_file(const std::shared_ptr<kernel::File>& file, std::uint64_t bytes);  // private
  void unmap(Addr at, std::uint64_t bytes);
  int advise(Addr at, std::uint64_t bytes, kernel::Madvise advice);  // errno
  void protect(Addr at, std::uint64_t bytes, unsigned prot);
  void move(Addr from, std::uint64_t bytes, Addr to);  // mremap(FIXED)
  void touch(Addr at, std::uint64_t bytes, std::uint64_t stride);
  void write(Addr at);
  void read(Addr at);
  // Writes /proc/sys/vm/nr_hugepages; answers the default size, 0 if there is none.
  std::uint64_t set_nr_hugepages(std::uint64_t count);
  kernel::Process& fork();
  void child_writes(kernel::Process& child, Addr at);
  void child_exits(kernel::Process& child);
  Addr malloc(std::uint64_t bytes);
  void free(Addr at);
  // Marks `phase` when all threads have done `body`, "joined" when they have ended.
  void threads(unsigned count, const std::function<void(ProbeHeap::Thread&)>& body,
               const std::string& phase);

  [[nodiscard]] kernel::Khugepaged& khugepaged();
  [[nodiscard]] std::uint64_t anon_huge_bytes() const;  // AnonHugePages of smaps_rollup
  [[nodiscard]] Task& task() { return *task_; }
  [[nodiscard]] kernel::Process& process() { return *process_; }

 private:
  [[nodiscard]] Counters snapshot();
  void find_own_pages();
  void write_own_pages(std::size_t from, std::size_t count);

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<kernel::Kernel> kernel_;
  kernel::Process* process_ = nullptr;
  Task* task_ = nullptr;
  std::uint64_t stack_touched_ = 0;
  kernel::FileKind file_kind_ = kernel::FileKind::kShmem;
  std::unique_ptr<ProbeHeap> heap_;
  // The probe's own data that it writes around a snapshot: `before_` pages ahead of reading
  // minflt, `after_` behind.  It shows only after a fork, when the pages are shared.
  std::vector<Addr> own_pages_;
  std::size_t before_ = 0, after_ = 0;
  Counters last_;
  std::vector<Row> rows_;
  std::map<std::uint64_t, std::uint64_t>
      mmapped_;  // chunks of malloc: start of the mapping, bytes
};

// The operations of a test; null if the model's probe doesn't know it yet.
[[nodiscard]] std::function<void(Probe&)> operations_of(const std::string& test);

}  // namespace faultline::real_kernels
