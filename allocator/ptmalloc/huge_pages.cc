// SPDX-License-Identifier: Apache-2.0
#include "allocator/ptmalloc/huge_pages.h"

#include <algorithm>
#include <bit>

#include "allocator/ptmalloc/layout.h"
#include "allocator/ptmalloc/thp_hooks.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kByAdvice = 1, kDefaultSize = 2;  // values of hugetlb

// The RFC took the size itself; 1 is the default that the architecture's hook finds.  It
// asked for no mode.
void use_thp_pagesize(const PlatformFacts& facts, std::uint64_t value, HugePages& out) {
  if (facts.thp_size == 0 || value == 0) return;
  out.thp_pagesize = value == kByAdvice ? verified_thp_size(facts) : value;
  if (!std::has_single_bit(out.thp_pagesize) || out.thp_pagesize < facts.page_size)
    out.thp_pagesize = 0;
  out.advises = out.thp_pagesize != 0;
}

void use_thp(const PlatformFacts& facts, const ReleaseProfile& release, HugePages& out) {
  const bool always = facts.thp_mode == 'a' && release.thp_in_always;
  if (facts.thp_size > release.thp_limit || (facts.thp_mode != 'm' && !always)) return;
  out.thp_pagesize = facts.thp_size;
  out.advises = facts.thp_mode == 'm';
}

// AArch64 from 2.43: 2 MiB unless the tunable says otherwise, whatever the machine's size
// and mode.  2.43 looks at the mode at the first growth; 2.44 takes it for "madvise".
void use_default_thp(const PlatformFacts& facts, const ReleaseProfile& release,
                     HugePages& out) {
  out.thp_pagesize = thp_hook(Architecture::kAArch64).default_size;
  out.advises = facts.thp_mode == 'm' || release.thp_default_advises;
}

void use_hugetlb(const PlatformFacts& facts, const ReleaseProfile& release,
                 std::uint64_t value, HugePages& out) {
  const std::uint64_t size = value == kDefaultSize ? facts.hugetlb_default : value;
  if (size == 0 ||
      std::ranges::find(facts.hugetlb_sizes, size) == facts.hugetlb_sizes.end())
    return;
  out.hp_pagesize = size;
  out.hp_flags = sys::kMapHugetlb | static_cast<unsigned>(std::countr_zero(size))
                                        << sys::kMapHugeShift;
  if (release.hugetlb_sizes_heaps) {
    out.heap_min = size;
    out.heap_max = 4 * size;
    out.hp_arenas = true;
  } else {
    out.hp_arenas = size <= kHeapMax;
  }
}

}  // namespace

HugePages huge_pages(const PlatformFacts& facts, const ReleaseProfile& release,
                     const Settings& settings) {
  HugePages out;
  out.heap_max = kHeapMax;
  out.heap_min = kHeapMin;
  const std::uint64_t hugetlb = settings.hugetlb.value_or(0);
  switch (release.huge_page_tunable) {
    case HugePageTunable::kNone:
      break;
    case HugePageTunable::kThpPagesize:
      use_thp_pagesize(facts, settings.thp_pagesize, out);
      break;
    case HugePageTunable::kHugetlb:
      if (!settings.hugetlb && release.thp_by_default)
        use_default_thp(facts, release, out);
      else if (hugetlb == kByAdvice)
        use_thp(facts, release, out);
      else if (hugetlb >= kDefaultSize)
        use_hugetlb(facts, release, hugetlb, out);
      break;
  }
  const bool thp_heaps = release.thp_heaps != ThpHeaps::kNo && out.thp_pagesize != 0 &&
                         out.thp_pagesize <= kHeapMax;
  out.heap_unit = thp_heaps ? out.thp_pagesize : facts.page_size;
  return out;
}

}  // namespace faultline::alloc
