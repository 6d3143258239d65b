// SPDX-License-Identifier: Apache-2.0
// The modelled platform: set-up, system calls, attribution.
#include "allocator/platform/model.h"

#include <algorithm>
#include <bit>

#include "kernel_model/mm/mm.h"
#include "kernel_model/tlb/tlb.h"
#include "sim/engine.h"

namespace faultline::alloc {
namespace {

constexpr Centre kSysGetrandom{"sys_getrandom", true};

char thp_letter(kernel::ThpEnabled mode) {
  switch (mode) {
    case kernel::ThpEnabled::kAlways:
      return 'a';
    case kernel::ThpEnabled::kMadvise:
      return 'm';
    case kernel::ThpEnabled::kNever:
      return 'n';
  }
  return 'n';
}

unsigned vrange_version(kernel::VrangeVersion version) {
  switch (version) {
    case kernel::VrangeVersion::kNone:
      return 0;
    case kernel::VrangeVersion::kVma:
      return 6;
    case kernel::VrangeVersion::k7:
      return 7;
    case kernel::VrangeVersion::k8:
      return 8;
    case kernel::VrangeVersion::k9:
      return 9;
    case kernel::VrangeVersion::k10:
      return 10;
  }
  return 0;
}

Architecture architecture_of(arch::Isa isa) {
  switch (isa) {
    case arch::Isa::kX86_64:
      return Architecture::kX86;
    case arch::Isa::kArm64:
      return Architecture::kAArch64;
    case arch::Isa::kPpc64Hash:
    case arch::Isa::kPpc64Radix:
      return Architecture::kPowerPc;
    case arch::Isa::kS390x:
      return Architecture::kS390;
    case arch::Isa::kRiscv64:
      return Architecture::kRiscV;
    case arch::Isa::kMips64:
      return Architecture::kMips;
    case arch::Isa::kSparc64:
      return Architecture::kSparc;
    case arch::Isa::kLoongarch64:
      return Architecture::kLoongArch;
  }
  return Architecture::kX86;
}

PlatformFacts facts_of(const kernel::Kernel& kernel) {
  const auto& geometry = kernel.profile().geometry;
  PlatformFacts f;
  f.architecture = architecture_of(kernel.profile().isa);
  f.page_size = geometry.page_size();
  f.thp_size = geometry.has_thp ? geometry.pmd_size() : 0;
  f.cpus = kernel.profile().cpus;
  f.thp_mode = thp_letter(kernel.config().thp_enabled);
  f.hugetlb_default = geometry.hugetlb_sizes.empty() ? 0 : geometry.hugetlb_sizes.front();
  for (std::size_t i = 0;
       i < std::min(f.hugetlb_sizes.size(), geometry.hugetlb_sizes.size()); ++i)
    f.hugetlb_sizes[i] = geometry.hugetlb_sizes[i];
  f.overcommit_memory = kernel.config().overcommit_memory;
  f.address_bits = geometry.va_bits;
  f.vrange_version = vrange_version(kernel.config().vrange);
  return f;
}

SysValue answer(const kernel::SysResult<kernel::VirtAddr>& r) {
  return r.ok() ? SysValue{r.value().v, 0} : SysValue{0, static_cast<int>(r.error())};
}

}  // namespace

ModelProcess::ModelProcess(kernel::Process& process, const ModelOptions& options)
    : process_(process), options_(options), facts_(facts_of(process.kernel())) {
  constexpr std::uint64_t kPsPerSecond = 1'000'000'000'000;
  const arch::Profile& profile = process.kernel().profile();
  if (const std::int64_t given = profile.costs.instruction.count_ps(); given != 0)
    ps_per_instruction_ = static_cast<std::uint64_t>(given) << 16;
  else if (profile.cpu_hz != 0)
    ps_per_instruction_ = (kPsPerSecond << 16) / profile.cpu_hz;
  process.access_caches.add(pieces_);
  process.on_discard = [this](kernel::Range r) {
    if (!echoes_.empty()) echoes_.before_discard(r.start.v, r.end.v);
    window_.discard(r.start.v, r.end.v);
  };
  process.on_move = [this](kernel::VirtAddr from, kernel::VirtAddr to,
                           std::uint64_t bytes) {
    if (!echoes_.empty()) {
      echoes_.before_move(from.v, from.v + bytes);
      echoes_.before_discard(to.v, to.v + bytes);
    }
    window_.move(from.v, to.v, bytes);
  };
  process.on_fork = [this](kernel::Process& child) {
    children_.push_back(std::make_unique<ModelProcess>(child, *this));
  };
}

ModelProcess::ModelProcess(kernel::Process& process, const ModelProcess& parent)
    : ModelProcess(process, parent.options_) {
  window_.assign(parent.window_);
  echoes_.assign(parent.echoes_);
  break_ = parent.break_;
  multi_threaded_ = parent.multi_threaded_;
  storage_used_ = parent.storage_used_;
  bus_handler_ = parent.bus_handler_;
  stacks_ = parent.stacks_;
  centres_ = parent.centres_;
}

ModelProcess::~ModelProcess() {
  process_.access_caches.remove(pieces_);
  process_.on_discard = nullptr;
  process_.on_move = nullptr;
  process_.on_fork = nullptr;
}

Model::Model(ModelProcess& process, Task& task)
    : process_(process),
      task_(task),
      entries_(process.pieces_.entries()),
      ps_per_instruction_(process.ps_per_instruction_) {
  if (process.process_.kernel().tlbs() == nullptr) return;
  own_pieces_ = std::make_unique<PieceCache>();
  entries_ = own_pieces_->entries();
  process.process_.access_caches.add(*own_pieces_);
  on_move_ = std::make_unique<ForgetsOnMove>(*own_pieces_, task.cpu());
  task.engine().watch(task, *on_move_);
}

Model::~Model() {
  flush();
  if (!own_pieces_) return;
  task_.engine().unwatch(task_, *on_move_);
  process_.process_.access_caches.remove(*own_pieces_);
}

void Model::system_call(const Centre& centre, Duration body) {
  flush();
  const kernel::Kernel& kernel = process_.process_.kernel();
  const Scope entry(task_, kernel.centres().syscall_entry);
  const Scope call(task_, centre);
  task_.charge(kernel.profile().costs.syscall_entry_exit + body);
}

SysValue Model::mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags) {
  flush();
  return answer(kernel::sys_mmap(task_, process_.process_, {hint}, length, prot, flags));
}

int Model::munmap(Addr start, std::uint64_t length) {
  flush();
  return static_cast<int>(kernel::sys_munmap(task_, process_.process_, {start}, length));
}

int Model::mprotect(Addr start, std::uint64_t length, unsigned prot) {
  flush();
  return static_cast<int>(
      kernel::sys_mprotect(task_, process_.process_, {start}, length, prot));
}

int Model::madvise(Addr start, std::uint64_t length, int advice) {
  flush();
  return static_cast<int>(kernel::sys_madvise(task_, process_.process_, {start}, length,
                                              static_cast<kernel::Madvise>(advice)));
}

SysValue Model::mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                       unsigned flags) {
  flush();
  return answer(
      kernel::sys_mremap(task_, process_.process_, {start}, old_length, length, flags));
}

// The kernel writes the purged state from v8 on, through the program's own page tables.
SysValue Model::vrange(Addr start, std::uint64_t length, int mode, Addr fourth) {
  flush();
  int purged = 0;
  // Static storage is always there.
  const Addr pointer = (fourth & kStorageBit) != 0 ? 0 : fourth;
  const auto r = kernel::sys_vrange(task_, process_.process_, {start}, length, mode,
                                    {pointer}, &purged);
  if (!r.ok()) return {0, static_cast<int>(r.error())};
  if (process_.facts_.vrange_version >= 8 && fourth != 0) store(fourth, purged);
  return {r.value(), 0};
}

// As a libc does it: what the kernel answers tells whether the break moved.
SysValue Model::sbrk(std::int64_t delta) {
  flush();
  Addr& here = process_.break_;
  if (here == 0) here = kernel::sys_brk(task_, process_.process_, {0}).v;
  const Addr old = here;
  const Addr wanted = old + static_cast<std::uint64_t>(delta);
  if (delta == 0) return {old, 0};
  if ((delta > 0) != (wanted > old)) return {0, sys::kENOMEM};
  here = kernel::sys_brk(task_, process_.process_, {wanted}).v;
  if (here < wanted) return {0, sys::kENOMEM};
  return {old, 0};
}

std::uint64_t Model::monotonic_ns() {
  constexpr std::uint64_t kInstructions = 60;  // of the vDSO
  cycles(kInstructions);
  flush();
  return static_cast<std::uint64_t>(task_.now().since_start().count_ps()) / 1000;
}

void Model::usleep(std::uint64_t microseconds) {
  flush();
  kernel::sys_nanosleep(task_, process_.process_,
                        Duration::us(static_cast<std::int64_t>(microseconds)));
}

// A fixed function of the seed (splitmix64): the key's value decides nothing but must not
// vary.
std::uint64_t Model::random_key() {
  system_call(kSysGetrandom, {});
  std::uint64_t z = process_.options_.seed + 0x9e37'79b9'7f4a'7c15;
  z = (z ^ z >> 30) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
  return z ^ z >> 31;
}

ModelLock& Model::lock_at(Addr at, const char* name) {
  access(at, kernel::Access::kWrite);
  KnownLock& known = known_locks_[at / sizeof(Addr) % known_locks_.size()];
  if (known.at != at)
    known = {at, &process_.locks_.try_emplace(at, name).first->second};  // it stays there
  return *known.lock;
}

Addr Model::static_storage(std::uint64_t n) {
  constexpr std::uint64_t kCacheLine = 64;
  const Addr at = kStorageStart + process_.storage_used_;
  process_.storage_used_ += (n + kCacheLine - 1) & ~(kCacheLine - 1);
  FAULTLINE_CHECK_LE(kStorageStart + process_.storage_used_, kStorageEnd);
  return at;
}

void Model::find_step(Step& step, const Place& place) {
  const Centre* centre = nullptr;
  for (const auto& [known, its_centre] : *process_.centres_)
    if (known == &place) centre = &its_centre;
  if (centre == nullptr)
    centre = &process_.centres_->emplace_back(&place, Centre{place.name, false}).second;
  step = {task_.where(), &place, task_.below(*centre)};
}

}  // namespace faultline::alloc
