// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/probe.h"

#include <tuple>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/status.h"
#include "kernel_model/proc/vmstat.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"
#include "tests/real_kernels/machine.h"

namespace faultline::real_kernels {
namespace {

using namespace kernel;

constexpr unsigned kReadWrite = kProtRead | kProtWrite;
constexpr unsigned kAnon = kMapPrivate | kMapAnonymous;

std::int64_t kb(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes >> 10);
}

// The frames of the probe's threads are small.  Whether they all lie on one page with the
// thread's descriptor depends on the machine code; it was seen in the pages that the
// threads touch.
std::uint64_t stack_touched(arch::Isa isa, const std::string& test) {
  const bool calls_malloc = test != "thr_idle16";
  const bool two = isa == arch::Isa::kArm64 || (isa == arch::Isa::kS390x && calls_malloc);
  return two ? 8192 : 4096;
}

// Pages of stack, data and bss that mmprobe writes before and after it reads minflt in a
// snapshot: as counted in the faults of the phases behind a fork.
std::pair<std::size_t, std::size_t> own_pages(const arch::Profile& profile) {
  const bool large = profile.geometry.page_size() > 4096;
  switch (profile.isa) {
    case arch::Isa::kX86_64:
      return {2, 3};
    case arch::Isa::kArm64:
      return large ? std::pair{2U, 0U} : std::pair{3U, 3U};
    case arch::Isa::kS390x:
      return {3, 3};
    default:
      return {2, 2};
  }
}

}  // namespace

Probe::Probe(const DataFile& file, const Case& test) {
  const arch::Profile profile = profile_of(file, test);
  engine_ = std::make_unique<Engine>(shape_of(profile), SchedCosts{});
  kernel_ = std::make_unique<Kernel>(*engine_, profile, config_of(file, test.mode));
  process_ = &kernel_->create_process("mmprobe");
  stack_touched_ = stack_touched(profile.isa, test.test);
  std::tie(before_, after_) = own_pages(profile);
  file_kind_ = file.name == kNativeFile ? FileKind::kRegular : FileKind::kShmem;
  P = profile.geometry.page_size();
  H = profile.geometry.has_thp ? profile.geometry.pmd_size() : 0;
  U = H != 0 ? H : 2 * kMiB;
}

Probe::~Probe() = default;

std::vector<Row> Probe::run(const std::function<void(Probe&)>& body) {
  engine_->spawn("mmprobe", [&](Task& task) {
    task_ = &task;
    heap_ = std::make_unique<ProbeHeap>(*process_, *task_, stack_touched_);
    find_own_pages();
    last_ = snapshot();
    body(*this);
    heap_.reset();
  });
  engine_->run();
  return rows_;
}

// Private writable pages that are there from the start, the stack's first.
void Probe::find_own_pages() {
  for (const Vma& vma : process_->mm().vmas) {
    if ((vma.vm_flags & (VM_WRITE | VM_SHARED)) != VM_WRITE) continue;
    process_->mm().pages().for_each_present(vma.range(), [&](Range range, const PageView&) {
      for (Addr at = range.start; at < range.end; at = at + P)
        own_pages_.insert(vma.name == "[stack]" ? own_pages_.begin() : own_pages_.end(),
                          at);
    });
  }
  FAULTLINE_CHECK_GE(own_pages_.size(), before_ + after_);
}

void Probe::write_own_pages(std::size_t from, std::size_t count) {
  for (std::size_t i = from; i < from + count; ++i) write(own_pages_[i]);
}

Counters Probe::snapshot() {
  Counters c;
  write_own_pages(0, before_);
  c["minflt"] = static_cast<std::int64_t>(process_->minflt);
  c["majflt"] = static_cast<std::int64_t>(process_->majflt);
  write_own_pages(before_, after_);
  kernel_->vmstat().for_each([&](std::string_view name, std::uint64_t value) {
    c[std::string(name)] = static_cast<std::int64_t>(value);
  });
  c["nr_anon_transparent_hugepages"] = kernel_->vmstat().nr_anon_transparent_hugepages;
  const StatusMemory status = task_mem(process_->mm());
  c["VmSize"] = kb(status.vm_size);
  c["VmRSS"] = kb(status.vm_rss);
  c["RssAnon"] = kb(status.rss_anon);
  c["RssFile"] = kb(status.rss_file);
  c["RssShmem"] = kb(status.rss_shmem);
  c["VmData"] = kb(status.vm_data);
  c["VmPTE"] = kb(status.vm_pte);
  c["HugetlbPages"] = kb(status.hugetlb_pages);
  const MemSizeStats smaps = smaps_rollup(process_->mm());
  c["AnonHugePages"] = kb(smaps.anonymous_thp);
  c["ShmemPmdMapped"] = kb(smaps.shmem_thp);
  c["LazyFree"] = kb(smaps.lazyfree);
  c["Anonymous"] = kb(smaps.anonymous);
  c["Swap"] = kb(smaps.swap);
  return c;
}

Khugepaged& Probe::khugepaged() {
  return kernel_->mm_shared().khugepaged;
}

std::uint64_t Probe::anon_huge_bytes() const {
  return smaps_rollup(process_->mm()).anonymous_thp;
}

void Probe::mark(const std::string& phase) {
  const Counters now = snapshot();
  Row row{phase, {}};
  for (const auto& [name, value] : now) row.delta[name] = value - last_[name];
  row.delta["abs:VmPTE"] = now.at("VmPTE");
  row.delta["abs:VmRSS"] = now.at("VmRSS");
  rows_.push_back(row);
  last_ = now;
}

Probe::Addr Probe::map(std::uint64_t bytes, unsigned prot, unsigned flags) {
  const auto at = sys_mmap(task(), process(), {}, bytes, prot, flags);
  FAULTLINE_CHECK(at.ok());
  return at.value();
}

// n bytes at an aligned address, nothing else of ours adjacent.
Probe::Addr Probe::mapal(std::uint64_t bytes, std::uint64_t align) {
  const Addr p = map(bytes + 2 * align, kProtNone, kAnon | kMapNoreserve);
  const Addr q{(p.v + align - 1) & ~(align - 1)};
  const auto at = sys_mmap(task(), process(), q, bytes, kReadWrite, kAnon | kMapFixed);
  FAULTLINE_CHECK(at.ok() && at.value() == q);
  return q;
}

std::shared_ptr<File> Probe::write_file(std::uint64_t bytes, std::uint64_t piece) {
  auto file = std::make_shared<File>(*kernel_, file_kind_, "/tmp/mmprobe.dat", 0);
  for (std::uint64_t at = 0; at < bytes; at += piece)
    FAULTLINE_CHECK(sys_pwrite(task(), process(), *file, at, piece).ok());
  return file;
}

Probe::Addr Probe::map_file(const std::shared_ptr<File>& file, std::uint64_t bytes) {
  const auto at =
      sys_mmap_file(task(), process(), {}, bytes, kReadWrite, kMapPrivate, file, 0);
  FAULTLINE_CHECK(at.ok());
  return at.value();
}

void Probe::unmap(Addr at, std::uint64_t bytes) {
  FAULTLINE_CHECK(sys_munmap(task(), process(), at, bytes) == Errno::kOk);
}

int Probe::advise(Addr at, std::uint64_t bytes, Madvise advice) {
  return static_cast<int>(sys_madvise(task(), process(), at, bytes, advice));
}

void Probe::protect(Addr at, std::uint64_t bytes, unsigned prot) {
  FAULTLINE_CHECK(sys_mprotect(task(), process(), at, bytes, prot) == Errno::kOk);
}

void Probe::move(Addr from, std::uint64_t bytes, Addr to) {
  const auto at =
      sys_mremap(task(), process(), from, bytes, bytes, kMremapMaymove | kMremapFixed, to);
  FAULTLINE_CHECK(at.ok() && at.value() == to);
}

void Probe::touch(Addr at, std::uint64_t bytes, std::uint64_t stride) {
  FAULTLINE_CHECK(user_touch(task(), process(), at, bytes, stride, Access::kWrite) ==
                  Signal::kNone);
}

void Probe::write(Addr at) {
  FAULTLINE_CHECK(user_access(task(), process(), at, Access::kWrite) == Signal::kNone);
}

void Probe::read(Addr at) {
  FAULTLINE_CHECK(user_access(task(), process(), at, Access::kRead) == Signal::kNone);
}

Process& Probe::fork() {
  const auto child = sys_fork(task(), process());
  FAULTLINE_CHECK(child.ok());
  return *child.value();
}

void Probe::child_writes(Process& child, Addr at) {
  FAULTLINE_CHECK(user_access(task(), child, at, Access::kWrite) == Signal::kNone);
}

void Probe::child_exits(Process& child) {
  sys_exit_group(task(), child);
}

std::uint64_t Probe::set_nr_hugepages(std::uint64_t count) {
  HugetlbPool* pool = kernel_->hugetlb().default_pool();
  if (pool == nullptr) return 0;
  kernel_->hugetlb().set_max_huge_pages(*pool, count);
  return pool->size;
}

Probe::Addr Probe::malloc(std::uint64_t bytes) {
  return heap_->malloc(bytes);
}

void Probe::free(Addr at) {
  heap_->free(at);
}

void Probe::threads(unsigned count, const std::function<void(ProbeHeap::Thread&)>& body,
                    const std::string& phase) {
  heap_->threads(count, body, [&] { mark(phase); });
  mark("joined");
}

}  // namespace faultline::real_kernels
