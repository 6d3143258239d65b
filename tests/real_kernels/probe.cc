// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/probe.h"

#include "kernel_model/mm/mm.h"
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

}  // namespace

Probe::Probe(const DataFile& file, const Case& test) {
  const arch::Profile profile = profile_of(file, test);
  engine_ = std::make_unique<Engine>(shape_of(profile), SchedCosts{});
  kernel_ = std::make_unique<Kernel>(*engine_, profile, config_of(file, test.mode));
  process_ = &kernel_->create_process("mmprobe");
  P = profile.geometry.page_size();
  H = profile.geometry.has_thp ? profile.geometry.pmd_size() : 0;
  U = H != 0 ? H : 2 * kMiB;
}

Probe::~Probe() = default;

std::vector<Row> Probe::run(const std::function<void(Probe&)>& body) {
  task_ = &engine_->spawn("mmprobe", [&](Task&) {
    last_ = snapshot();
    body(*this);
  });
  task_->context = process_;
  engine_->run();
  return rows_;
}

Counters Probe::snapshot() const {
  Counters c;
  c["minflt"] = static_cast<std::int64_t>(process_->minflt);
  c["majflt"] = static_cast<std::int64_t>(process_->majflt);
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

// A request above the mmap threshold: glibc maps it alone, with a header of 16 bytes.
Probe::Addr Probe::malloc(std::uint64_t bytes) {
  constexpr std::uint64_t kHeader = 16, kSizeField = 8;
  const std::uint64_t length = (bytes + kHeader + kSizeField + P - 1) / P * P;
  const Addr chunk = map(length, kReadWrite, kAnon);
  write(chunk + kSizeField);
  mmapped_[chunk.v] = length;
  return chunk + kHeader;
}

void Probe::free(Addr at) {
  constexpr std::uint64_t kHeader = 16;
  const auto it = mmapped_.find(at.v - kHeader);
  FAULTLINE_CHECK(it != mmapped_.end());
  unmap({it->first}, it->second);
  mmapped_.erase(it);
}

}  // namespace faultline::real_kernels
