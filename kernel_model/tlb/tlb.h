// SPDX-License-Identifier: Apache-2.0
//
// The TLBs of a machine's CPUs, and what user accesses cost that they don't hold.
//
// An access looks into the first level, then the second, then the hardware walks the page
// tables; what was found goes into both levels, in pieces of the sizes that their arrays
// hold (a Cortex-A72 holds a 2 MiB page as two of 1 MiB in its first level; Zen holds four
// contiguous base pages as one).  A walk starts below the deepest table that the walk cache
// knows.  Entries belong to an address space (ASID, PCID), so that a context switch flushes
// nothing.  The kernel's flushes take entries out of every CPU's TLB at once.
//
// Fast paths elsewhere (allocator/platform/model.h) may skip the look for an entry that
// they know to be there and marked; whenever such an entry goes or loses its mark, the
// process's access_caches forget.
//
// Stands for: the hardware, and flush_tlb_mm_range() (arch/x86/mm/tlb.c),
// __flush_tlb_range() (arm64, asm/tlbflush.h), radix__flush_tlb_range() (POWER),
// __tlb_flush_mm() (s390), v4.15-6.18.
// Model: data accesses of user code alone; what the kernel itself touches takes no entries,
// and its own walks are part of its costs.  Stack, registers' spills and the libc's static
// data are not seen.  No prefetch of translations, no second access in flight: each access
// that misses waits for its walk.  A flush takes the walk cache's entries of its range,
// too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/page_tables.h"
#include "kernel_model/tlb/tlb_array.h"
#include "kernel_model/types.h"
#include "sim/task.h"
#include "sim/time.h"

namespace faultline::kernel {

// Of one process, on all CPUs.
struct TlbStats {
  std::uint64_t l1_misses = 0, l1_read_misses = 0;
  std::uint64_t walks = 0, read_walks = 0;  // that found a page
  std::uint64_t vain_walks = 0;             // that ended in a fault
  std::uint64_t flushes = 0, full_flushes = 0;
  Duration time;  // of second-level hits and walks

  TlbStats& operator+=(const TlbStats& more) {
    l1_misses += more.l1_misses;
    l1_read_misses += more.l1_read_misses;
    walks += more.walks;
    read_walks += more.read_walks;
    vain_walks += more.vain_walks;
    flushes += more.flushes;
    full_flushes += more.full_flushes;
    time += more.time;
    return *this;
  }
};

// What perf would show for an event.
[[nodiscard]] std::uint64_t counted(const TlbStats& stats, arch::TlbEvent event);

class Tlbs {
 public:
  explicit Tlbs(Kernel& kernel);

  // An access that the page tables allow; charged to the task where it stands.
  void access(Task& task, Process& process, VirtAddr at, Access access);
  // An access that they don't allow: a walk in vain, unless an entry without the right was
  // there.
  void fault(Task& task, Process& process, VirtAddr at);
  // Entries of the process that overlap `range` (or all, if that is what the architecture's
  // code does for so many strides) are gone.
  void flush(Process& process, Range range, std::uint64_t stride);
  void flush_all(Process& process);

  // How far around `at` the entry reaches that the CPU's first level holds; empty: none.
  [[nodiscard]] Range held(int cpu, const Process& process, VirtAddr at);
  [[nodiscard]] const TlbStats& stats(const Process& process) const;

  // For checks: calls f(asid, entry) for each translation that any CPU holds.
  template <typename F>
  void for_each(F f) const {
    for (const auto& cpu : cpus_)
      if (cpu)
        for (const auto& level : cpu->level)
          for (const TlbArray& array : level)
            for (const TlbEntry& e : array.entries())
              if (e.asid != 0) f(e.asid, e);
  }

 private:
  struct Hint {
    const TlbEntry* entry = nullptr;
    TlbArray* array = nullptr;
  };
  struct Cpu {
    std::array<std::vector<TlbArray>, 2> level;
    std::unique_ptr<TlbArray> walk_cache;  // null: none
    // Where the entry of a 4 KiB piece was last found in the first level.
    std::array<Hint, 1024> hints{};
  };
  static constexpr unsigned kPieceShift = 12;

  [[nodiscard]] Cpu& cpu(int number);
  [[nodiscard]] std::unique_ptr<Cpu> new_cpu() const;
  [[nodiscard]] Hint find(Cpu& cpu, unsigned level, Asid asid, VirtAddr at) const;
  [[nodiscard]] Hint find_first(Cpu& cpu, Asid asid, VirtAddr at);
  Duration miss(Cpu& cpu, Process& process, VirtAddr at, Access access);
  Duration walk_down(Cpu& cpu, Asid asid, VirtAddr at, unsigned level, PageTables& pages);
  void fill(Cpu& cpu, unsigned level, Asid asid, VirtAddr at, unsigned shift);
  void rearm(std::span<const TlbEntry> set);
  [[nodiscard]] TlbStats& stats_of(const Process& process);
  [[nodiscard]] bool flushes_all(Range range, std::uint64_t stride) const;

  Kernel& kernel_;
  const arch::Profile& profile_;
  unsigned coalesced_pages_ = 0;
  std::vector<std::unique_ptr<Cpu>> cpus_;  // from their first access on
  std::vector<TlbStats> stats_;             // by ASID
};

}  // namespace faultline::kernel
