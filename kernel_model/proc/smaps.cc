// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/smaps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/page_cache.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/proc/maps.h"

namespace faultline::kernel {
namespace {

// pss and pss_dirty etc. while they are summed up: 12 bits below one byte, so that thirds
// of a page add up (PSS_SHIFT).
constexpr unsigned kPssShift = 12;

// Pages of one run, all alike but for who shares them.
struct Run {
  bool anon, shmem, dirty;
};

// Stands for: smaps_page_accumulate(), of pages with the same number of mappings.
void accumulate(MemSizeStats& s, const Run& run, std::uint64_t bytes,
                std::uint64_t page_size, std::uint32_t mapcount) {
  const std::uint64_t share =
      (page_size << kPssShift) / std::max(mapcount, 1U) * (bytes / page_size);
  s.pss += share;
  if (run.dirty) s.pss_dirty += share;
  (run.anon ? s.pss_anon : run.shmem ? s.pss_shmem : s.pss_file) += share;
  if (mapcount > 1)
    (run.dirty ? s.shared_dirty : s.shared_clean) += bytes;
  else
    (run.dirty ? s.private_dirty : s.private_clean) += bytes;
}

class Walk {
 public:
  Walk(Mm& mm, const Vma& vma)
      : mm_(mm), vma_(vma), page_size_(mm.kernel().profile().geometry.page_size()) {}

  MemSizeStats gather() {
    mm_.pages().for_each_present(
        vma_.range(), [&](Range range, const PageView& view) { add(range, view); });
    for (std::uint64_t* pss : {&stats_.pss, &stats_.pss_dirty, &stats_.pss_anon,
                               &stats_.pss_file, &stats_.pss_shmem})
      *pss >>= kPssShift;
    if (vma_.vm_flags & VM_LOCKED) stats_.locked = stats_.pss;
    return stats_;
  }

 private:
  void add(Range range, const PageView& view) {
    switch (view.kind) {
      case PageView::kHugetlb:
        (mapped(pte_mapcount(mm_.kernel(), view.pfn)) > 1 ? stats_.shared_hugetlb
                                                          : stats_.private_hugetlb) +=
            range.bytes();
        return;
      case PageView::kSwap:
        stats_.swap += range.bytes();
        stats_.swap_pss += range.bytes();
        return;
      case PageView::kHuge:
        (view.file ? stats_.shmem_thp : stats_.anonymous_thp) += range.bytes();
        add_pages(range, view);
        return;
      case PageView::kBase:
        add_pages(range, view);
        return;
      default:  // zero pages, guards: no page of the process
        return;
    }
  }

  // Stands for: smaps_account().
  void add_pages(Range range, const PageView& view) {
    Kernel& kernel = mm_.kernel();
    const bool has_frame = !view.file || view.pfn.v != 0;
    const bool shmem = view.file && has_frame && is_shmem_page(kernel, view.pfn);
    const Run run{!view.file, shmem, view.dirty};
    stats_.rss += range.bytes();
    if (run.anon) stats_.anonymous += range.bytes();
    if (view.lazyfree) stats_.lazyfree += range.bytes();
    if (view.young) stats_.referenced += range.bytes();
    if (!has_frame || (kernel.processes().size() == 1 && !vma_.file)) {
      accumulate(stats_, run, range.bytes(), page_size_, 1);
      return;
    }
    // Pages of one run may be shared by different numbers of mappings after a fork.
    for (VirtAddr at = range.start; at < range.end; at = at + page_size_)
      accumulate(stats_, run, page_size_, page_size_, mapcount_at(at, range, view));
  }

  [[nodiscard]] std::uint32_t mapcount_at(VirtAddr at, Range range,
                                          const PageView& view) const {
    Kernel& kernel = mm_.kernel();
    if (view.kind == PageView::kHuge) {
      const auto piece = static_cast<std::uint32_t>((at - range.start) / page_size_);
      return mapped(page_mapcount(kernel, view.pfn, Pfn{view.pfn.v + piece}));
    }
    const Pfn pfn = mm_.pages().look(at).pfn;
    return mapped(page_mapcount(kernel, compound_head(kernel, pfn), pfn));
  }
  static std::uint32_t mapped(std::int32_t n) {
    return static_cast<std::uint32_t>(std::max(n, 1));
  }

  Mm& mm_;
  const Vma& vma_;
  const std::uint64_t page_size_;
  MemSizeStats stats_;
};

void kb_line(std::string& out, std::string_view label, std::uint64_t bytes) {
  fmt::format_to(std::back_inserter(out), "{}{:>8} kB\n", label, bytes >> 10);
}

// Stands for: __show_smap().
void sizes(std::string& out, const MemSizeStats& s, bool rollup, unsigned version) {
  kb_line(out, "Rss:            ", s.rss);
  kb_line(out, "Pss:            ", s.pss);
  if (version >= 6'000) kb_line(out, "Pss_Dirty:      ", s.pss_dirty);
  if (rollup && version >= 5'004) {
    kb_line(out, "Pss_Anon:       ", s.pss_anon);
    kb_line(out, "Pss_File:       ", s.pss_file);
    kb_line(out, "Pss_Shmem:      ", s.pss_shmem);
  }
  kb_line(out, "Shared_Clean:   ", s.shared_clean);
  kb_line(out, "Shared_Dirty:   ", s.shared_dirty);
  kb_line(out, "Private_Clean:  ", s.private_clean);
  kb_line(out, "Private_Dirty:  ", s.private_dirty);
  kb_line(out, "Referenced:     ", s.referenced);
  kb_line(out, "Anonymous:      ", s.anonymous);
  if (version >= 6'007) kb_line(out, "KSM:            ", 0);
  if (version >= 4'012) kb_line(out, "LazyFree:       ", s.lazyfree);
  kb_line(out, "AnonHugePages:  ", s.anonymous_thp);
  if (version >= 4'008) kb_line(out, "ShmemPmdMapped: ", s.shmem_thp);
  if (version >= 5'004) kb_line(out, "FilePmdMapped:  ", 0);
  fmt::format_to(std::back_inserter(out), "Shared_Hugetlb: {:>8} kB\n",
                 s.shared_hugetlb >> 10);
  fmt::format_to(std::back_inserter(out), "Private_Hugetlb: {:>7} kB\n",
                 s.private_hugetlb >> 10);
  kb_line(out, "Swap:           ", s.swap);
  kb_line(out, "SwapPss:        ", s.swap_pss);
  kb_line(out, "Locked:         ", s.locked);
}

// Stands for: show_smap_vma_flags().
std::string vm_flags_text(std::uint64_t flags) {
  struct Letter {
    std::uint64_t flag;
    const char* text;
  };
  static constexpr std::array kLetters = {
      Letter{VM_READ, "rd"},        Letter{VM_WRITE, "wr"},
      Letter{VM_EXEC, "ex"},        Letter{VM_SHARED, "sh"},
      Letter{VM_MAYREAD, "mr"},     Letter{VM_MAYWRITE, "mw"},
      Letter{VM_MAYEXEC, "me"},     Letter{VM_MAYSHARE, "ms"},
      Letter{VM_GROWSDOWN, "gd"},   Letter{VM_PFNMAP, "pf"},
      Letter{VM_MAYBE_GUARD, "gu"}, Letter{VM_LOCKED, "lo"},
      Letter{VM_IO, "io"},          Letter{VM_SEQ_READ, "sr"},
      Letter{VM_RAND_READ, "rr"},   Letter{VM_DONTCOPY, "dc"},
      Letter{VM_DONTEXPAND, "de"},  Letter{VM_LOCKONFAULT, "lf"},
      Letter{VM_ACCOUNT, "ac"},     Letter{VM_NORESERVE, "nr"},
      Letter{VM_HUGETLB, "ht"},     Letter{VM_WIPEONFORK, "wf"},
      Letter{VM_DONTDUMP, "dd"},    Letter{VM_SOFTDIRTY, "sd"},
      Letter{VM_MIXEDMAP, "mm"},    Letter{VM_HUGEPAGE, "hg"},
      Letter{VM_NOHUGEPAGE, "nh"}};
  std::string out = "VmFlags: ";
  for (const Letter& letter : kLetters)
    if (flags & letter.flag) out += std::string(letter.text) + " ";
  return out + "\n";
}

bool thp_eligible(const Mm& mm, const Vma& vma) {
  const KernelConfig& config = mm.kernel().config();
  const arch::Geometry& g = mm.kernel().profile().geometry;
  if (!g.has_thp || vma_thp_disabled(mm, vma) || (vma.vm_flags & VM_NOHUGEPAGE) ||
      !vma.anonymous)
    return false;
  if (vma.vm_flags & (kVmSpecial | VM_HUGETLB)) return false;
  if (config.thp_enabled == ThpEnabled::kNever) return false;
  if (config.thp_enabled == ThpEnabled::kMadvise && !(vma.vm_flags & VM_HUGEPAGE))
    return false;
  const std::uint64_t first = (vma.start.v + g.pmd_size() - 1) & ~(g.pmd_size() - 1);
  return first + g.pmd_size() <= vma.end.v;
}

}  // namespace

MemSizeStats& MemSizeStats::operator+=(const MemSizeStats& o) {
  rss += o.rss, pss += o.pss, pss_dirty += o.pss_dirty;
  pss_anon += o.pss_anon, pss_file += o.pss_file, pss_shmem += o.pss_shmem;
  shared_clean += o.shared_clean, shared_dirty += o.shared_dirty;
  private_clean += o.private_clean, private_dirty += o.private_dirty;
  referenced += o.referenced, anonymous += o.anonymous, lazyfree += o.lazyfree;
  anonymous_thp += o.anonymous_thp, shmem_thp += o.shmem_thp;
  shared_hugetlb += o.shared_hugetlb, private_hugetlb += o.private_hugetlb;
  swap += o.swap, swap_pss += o.swap_pss, locked += o.locked;
  return *this;
}

MemSizeStats smap_gather_stats(Mm& mm, const Vma& vma) {
  return Walk(mm, vma).gather();
}

MemSizeStats smaps_rollup(Mm& mm) {
  MemSizeStats sum;
  for (const Vma& vma : mm.vmas) sum += smap_gather_stats(mm, vma);
  return sum;
}

std::string smaps_text(Mm& mm) {
  const unsigned version = mm.kernel().version();
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  std::string out;
  for (const Vma& vma : mm.vmas) {
    out += map_line(mm, vma);
    kb_line(out, "Size:           ", vma.bytes());
    kb_line(out, "KernelPageSize: ", page);
    kb_line(out, "MMUPageSize:    ", page);
    sizes(out, smap_gather_stats(mm, vma), false, version);
    if (version >= 4'020)
      out += version >= 6'006
                 ? fmt::format("THPeligible:    {:>8}\n", thp_eligible(mm, vma) ? 1 : 0)
                 : fmt::format("THPeligible:    {}\n", thp_eligible(mm, vma) ? 1 : 0);
    out += vm_flags_text(vma.vm_flags);
  }
  return out;
}

std::string smaps_rollup_text(Mm& mm) {
  if (mm.vmas.first() == nullptr) return {};
  std::string out = map_header(mm.vmas.first()->start, mm.vmas.last()->end, "---p", 0,
                               "00:00 0", "[rollup]");
  sizes(out, smaps_rollup(mm), true, mm.kernel().version());
  return out;
}

}  // namespace faultline::kernel
