// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/tlb/tlb.h"

#include <algorithm>
#include <bit>

#include "kernel_model/mm/mm.h"
#include "kernel_model/tlb/translation.h"

namespace faultline::kernel {
namespace {

// Outside the kernel: the hardware does it while the program waits.
constexpr Centre kPageWalk{"page_walk", false};

unsigned log2_of(std::uint64_t n) {
  return static_cast<unsigned>(std::countr_zero(n));
}

std::vector<unsigned> shifts_of(const arch::TlbLevel& array, unsigned page_shift) {
  std::vector<unsigned> shifts;
  for (const std::uint64_t size : array.page_sizes) shifts.push_back(log2_of(size));
  if (array.coalesced_pages != 0)
    shifts.push_back(page_shift + log2_of(array.coalesced_pages));
  return shifts;
}

}  // namespace

std::uint64_t counted(const TlbStats& stats, arch::TlbEvent event) {
  switch (event) {
    case arch::TlbEvent::kL1Misses:
      return stats.l1_misses;
    case arch::TlbEvent::kL1ReadMisses:
      return stats.l1_read_misses;
    case arch::TlbEvent::kWalks:
      return stats.walks;
    case arch::TlbEvent::kReadWalks:
      return stats.read_walks;
    case arch::TlbEvent::kNone:
      break;
  }
  return 0;
}

Tlbs::Tlbs(Kernel& kernel)
    : kernel_(kernel), profile_(kernel.profile()), cpus_(profile_.cpus) {
  for (const arch::TlbLevel& array : profile_.tlb)
    coalesced_pages_ = std::max(coalesced_pages_, array.coalesced_pages);
}

std::unique_ptr<Tlbs::Cpu> Tlbs::new_cpu() const {
  auto made = std::make_unique<Cpu>();
  const unsigned page_shift = profile_.geometry.page_shift;
  for (const arch::TlbLevel& array : profile_.tlb)
    made->level[array.level - 1].emplace_back(array.entries, array.ways,
                                              shifts_of(array, page_shift));
  if (profile_.walk_cache.entries == 0) return made;
  std::vector<unsigned> shifts;
  unsigned shift = page_shift;
  const auto& levels = profile_.geometry.levels;
  for (std::size_t i = levels.size(); i-- > 1;)
    shifts.push_back(shift += levels[i].index_bits);
  made->walk_cache = std::make_unique<TlbArray>(profile_.walk_cache.entries,
                                                profile_.walk_cache.ways, shifts);
  return made;
}

Tlbs::Cpu& Tlbs::cpu(int number) {
  auto& slot = cpus_[static_cast<std::size_t>(number)];
  if (!slot) slot = new_cpu();
  return *slot;
}

TlbStats& Tlbs::stats_of(const Process& process) {
  if (stats_.size() <= process.asid()) stats_.resize(process.asid() + 1);
  return stats_[process.asid()];
}

const TlbStats& Tlbs::stats(const Process& process) const {
  static constexpr TlbStats kNone{};
  return process.asid() < stats_.size() ? stats_[process.asid()] : kNone;
}

Tlbs::Hint Tlbs::find(Cpu& cpu, unsigned level, Asid asid, VirtAddr at) const {
  for (TlbArray& array : cpu.level[level])
    if (const TlbEntry* const entry = array.find(asid, at)) return {entry, &array};
  return {};
}

Tlbs::Hint Tlbs::find_first(Cpu& cpu, Asid asid, VirtAddr at) {
  Hint& hint = cpu.hints[(at.v >> kPieceShift) % cpu.hints.size()];
  if (hint.entry != nullptr && hint.entry->covers(asid, at)) return hint;
  const Hint found = find(cpu, 0, asid, at);
  if (found.entry != nullptr) hint = found;
  return found;
}

// Whoever skips the look for one of these must look again.
void Tlbs::rearm(std::span<const TlbEntry> set) {
  for (const TlbEntry& e : set)
    if (e.asid != 0) kernel_.processes()[e.asid - 1]->access_caches.forget();
}

void Tlbs::fill(Cpu& cpu, unsigned level, Asid asid, VirtAddr at, unsigned shift) {
  TlbArray* best = nullptr;
  for (TlbArray& array : cpu.level[level])
    if (array.fit(shift) > (best == nullptr ? 0 : best->fit(shift))) best = &array;
  if (best == nullptr) return;
  const TlbArray::Insertion done = best->insert(asid, at, best->fit(shift));
  if (level != 0) return;
  cpu.hints[(at.v >> kPieceShift) % cpu.hints.size()] = {done.entry, best};
  if (done.evicted != 0) kernel_.processes()[done.evicted - 1]->access_caches.forget();
  if (done.dropped_marks) rearm(best->set_of(*done.entry));
}

// The tables above `level` whose entry the walk cache lacks are read on the way.
Duration Tlbs::walk_down(Cpu& cpu, Asid asid, VirtAddr at, unsigned level,
                         PageTables& pages) {
  Duration cost = profile_.costs.tlb_miss_walk;
  for (unsigned above = level; above-- > 0;) {
    const unsigned shift = pages.tree().shape(above).shift;
    if (cpu.walk_cache) {
      if (const TlbEntry* const known = cpu.walk_cache->find(asid, at, shift)) {
        cpu.walk_cache->use(*known);
        break;
      }
      cpu.walk_cache->insert(asid, at, shift);
    }
    cost += profile_.costs.tlb_walk_level;
  }
  return cost;
}

Duration Tlbs::miss(Cpu& cpu, Process& process, VirtAddr at, Access access) {
  TlbStats& stats = stats_of(process);
  const std::uint64_t read = access == Access::kRead ? 1 : 0;
  ++stats.l1_misses;
  stats.l1_read_misses += read;
  const Asid asid = process.asid();
  if (const Hint second = find(cpu, 1, asid, at); second.entry != nullptr) {
    second.array->use(*second.entry);
    fill(cpu, 0, asid, at, second.entry->shift);
    return profile_.costs.tlb_l2_hit;
  }
  ++stats.walks;
  stats.read_walks += read;
  PageTables& pages = process.mm().pages();
  Translation found = translation_of(pages, at);
  const unsigned page_shift = profile_.geometry.page_shift;
  if (coalesced_pages_ != 0 && found.shift == page_shift &&
      coalesces(pages, at, coalesced_pages_))
    found.shift += log2_of(coalesced_pages_);
  const Duration cost = walk_down(cpu, asid, at, found.level, pages);
  fill(cpu, 1, asid, at, found.shift);
  fill(cpu, 0, asid, at, found.shift);
  return cost;
}

void Tlbs::access(Task& task, Process& process, VirtAddr at, Access access) {
  Cpu& here = cpu(task.cpu());
  if (const Hint first = find_first(here, process.asid(), at); first.entry != nullptr) {
    if (first.array->use(*first.entry)) rearm(first.array->set_of(*first.entry));
    return;
  }
  const Duration cost = miss(here, process, at, access);
  stats_of(process).time += cost;
  task.charge(kPageWalk, cost);
}

void Tlbs::fault(Task& task, Process& process, VirtAddr at) {
  Cpu& here = cpu(task.cpu());
  const Asid asid = process.asid();
  if (find_first(here, asid, at).entry != nullptr ||
      find(here, 1, asid, at).entry != nullptr)
    return;
  PageTables& pages = process.mm().pages();
  const Duration cost = walk_down(here, asid, at, deepest_level(pages, at), pages);
  TlbStats& stats = stats_of(process);
  ++stats.vain_walks;
  stats.time += cost;
  task.charge(kPageWalk, cost);
}

// x86: tlb_single_page_flush_ceiling; arm64: MAX_TLBI_OPS; POWER radix:
// tlb_single_page_flush_ceiling; hash POWER and all others: entry by entry.
bool Tlbs::flushes_all(Range range, std::uint64_t stride) const {
  constexpr std::uint64_t kCeiling = 33, kTlbiOps4_15 = 1024;
  const std::uint64_t strides = (range.bytes() + stride - 1) / stride;
  switch (profile_.isa) {
    case arch::Isa::kX86_64:
    case arch::Isa::kPpc64Radix:
      return strides > kCeiling;
    case arch::Isa::kArm64:
      return strides >=
             (kernel_.version() < 5'000 ? kTlbiOps4_15 : profile_.geometry.page_size() / 8);
    case arch::Isa::kS390x:
      return true;
    default:
      return false;
  }
}

void Tlbs::flush(Process& process, Range range, std::uint64_t stride) {
  if (flushes_all(range, stride)) {
    ++stats_of(process).full_flushes;
    flush_all(process);
    return;
  }
  ++stats_of(process).flushes;
  const Asid asid = process.asid();
  for (const auto& cpu : cpus_) {
    if (!cpu) continue;
    for (auto& level : cpu->level)
      for (TlbArray& array : level) array.flush(asid, range);
    if (cpu->walk_cache) cpu->walk_cache->flush(asid, range);
  }
  process.access_caches.forget();
}

void Tlbs::flush_all(Process& process) {
  for (const auto& cpu : cpus_) {
    if (!cpu) continue;
    for (auto& level : cpu->level)
      for (TlbArray& array : level) array.flush(process.asid());
    if (cpu->walk_cache) cpu->walk_cache->flush(process.asid());
  }
  process.access_caches.forget();
}

Range Tlbs::held(int number, const Process& process, VirtAddr at) {
  const Hint found = find_first(cpu(number), process.asid(), at);
  return found.entry == nullptr ? Range{} : found.entry->range();
}

}  // namespace faultline::kernel
