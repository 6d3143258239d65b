// SPDX-License-Identifier: Apache-2.0
//
// The deferred-split list and its shrinker, and the stats of each size.
#include <gtest/gtest.h>

#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mthp.h"
#include "kernel_model/mm/split_huge_page.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/proc/thp_sysfs.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr VirtAddr kAligned{32ULL << 20};

MthpStat& stat(ToyMachine& m, unsigned order) {
  return m.kernel.mm_shared().mthp_stats[order];
}

// A machine whose khugepaged would fill up to `max_none` empty entries; frames hold what
// was written to them.
struct Watched : ToyMachine {
  explicit Watched(std::uint64_t max_none, const std::string& preset = "6.12")
      : ToyMachine(toy_profile(), config_of(max_none, preset)) {
    kernel.watch_contents();
  }
  static KernelConfig config_of(std::uint64_t max_none, const std::string& preset) {
    KernelConfig c = toy_config(preset);
    c.khugepaged_run = false;
    c.khugepaged_max_ptes_none = max_none;
    return c;
  }
  void store(Task& t, VirtAddr at) {
    write(t, at);
    kernel.contents()->wrote(frame(at), 1);
  }
  Pfn frame(VirtAddr at) {
    const PageView view = pages().look(at);
    if (view.kind != PageView::kHuge) return view.pfn;
    const auto piece = (at - pages().pmd_range(at).start) / page();
    return {view.pfn.v + static_cast<std::uint32_t>(piece)};
  }
  std::uint64_t shrink(Task& t) { return deferred_split_scan(t, kernel, 100); }
  std::size_t queued() { return kernel.mm_shared().deferred_split.size(); }
};

TEST(Underused, HugePagesThatAreMostlyZerosAreSplitUnderPressure) {
  Watched m(5);
  m.run([&](Task& t) {
    m.mmap(t, 24, kAligned);
    for (const std::uint64_t page : {0, 3}) m.store(t, kAligned + page * m.page());
    for (const std::uint64_t page : {8, 9, 10}) m.store(t, kAligned + page * m.page());
    EXPECT_EQ(m.queued(), 2U) << "every new huge page waits there";
    EXPECT_EQ(m.vmstat().thp_deferred_split_page, 0U);
    const std::uint64_t free = m.kernel.phys().free_pages_total();
    EXPECT_EQ(m.shrink(t), 6U) << "six zero pages of the first; the second has only five";
    EXPECT_EQ(m.kernel.phys().free_pages_total(), free + 6);
    EXPECT_EQ(m.draw(kAligned, 16), "pzzpzzzzHHHHHHHH");
    EXPECT_EQ(m.queued(), 0U) << "the other one is not looked at again";
  });
  EXPECT_EQ(m.vmstat().thp_underused_split_page, 1U);
  EXPECT_EQ(m.vmstat().thp_split_page, 1U);
}

TEST(Underused, NotWithTheDefaultMaxPtesNoneNorBefore612) {
  for (const auto& [max_none, preset] : {std::pair{7U, "6.12"}, {5U, "6.8"}}) {
    Watched m(max_none, preset);
    m.run([&](Task& t) {
      m.mmap(t, 8, kAligned);
      m.store(t, kAligned);
      EXPECT_EQ(m.shrink(t), 0U);
      EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
    });
    EXPECT_EQ(m.vmstat().thp_underused_split_page, 0U);
  }
}

TEST(Underused, LockedPagesStayWhole) {
  Watched m(5);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.store(t, kAligned);
    EXPECT_EQ(sys_mlock(t, m.process(), kAligned, m.huge()), Errno::kOk);
    EXPECT_EQ(m.shrink(t), 0U);
    EXPECT_EQ(m.draw(kAligned, 8), "HHHHHHHH");
  });
}

TEST(DeferredSplit, APartIsUnmappedAndTheCountersOfTheSizeSayIt) {
  ToyMachine m(toy_profile(), Watched::config_of(7, "6.12"));
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    m.write(t, kAligned);
    m.write(t, kAligned + m.huge());
    EXPECT_EQ(stat(m, 3).anon_fault_alloc, 2U);
    EXPECT_EQ(stat(m, 3).nr_anon, 2U);
    sys_madvise(t, m.process(), kAligned, m.page(), Madvise::kDontneed);
    sys_madvise(t, m.process(), kAligned + m.page(), m.page(), Madvise::kDontneed);
    EXPECT_EQ(stat(m, 3).split_deferred, 1U) << "once a page";
    EXPECT_EQ(stat(m, 3).nr_anon_partially_mapped, 1U);
    EXPECT_EQ(m.vmstat().thp_deferred_split_page, 1U);
    EXPECT_EQ(deferred_split_scan(t, m.kernel, 100), 2U);
    EXPECT_EQ(stat(m, 3).split, 1U);
    EXPECT_EQ(stat(m, 3).nr_anon, 1U);
    EXPECT_EQ(stat(m, 3).nr_anon_partially_mapped, 0U);
    sys_munmap(t, m.process(), kAligned, 2 * m.huge());
    EXPECT_EQ(stat(m, 3).nr_anon, 0U);
  });
}

TEST(DeferredSplit, APageThatSomebodyHoldsFailsAndGoesToTheEnd) {
  ToyMachine m(toy_profile(), Watched::config_of(7, "6.8"));
  m.run([&](Task& t) {
    m.mmap(t, 16, kAligned);
    for (std::uint64_t i = 0; i < 2; ++i) {
      m.write(t, kAligned + i * m.huge());
      sys_madvise(t, m.process(), kAligned + i * m.huge(), m.page(), Madvise::kDontneed);
    }
    const Pfn head{m.pages().look(kAligned + m.page()).pfn.v - 1};
    ++m.kernel.phys().page(head).refcount;  // a pin
    EXPECT_EQ(deferred_split_scan(t, m.kernel, 1), 0U);
    EXPECT_EQ(m.vmstat().thp_split_page_failed, 1U);
    EXPECT_EQ(stat(m, 3).split_failed, 1U);
    EXPECT_EQ(deferred_split_scan(t, m.kernel, 1), 1U) << "the other one";
    --m.kernel.phys().page(head).refcount;
    EXPECT_EQ(deferred_split_scan(t, m.kernel, 1), 1U);
  });
}

// --- sizes below the PMD's ---

KernelConfig mthp(const std::string& preset) {
  KernelConfig config = toy_config(preset);
  config.khugepaged_run = false;
  config.thp_enabled = ThpEnabled::kMadvise;
  return config;
}

TEST(Mthp, EachSizeHasItsOwnSetting) {
  struct Row {
    std::vector<std::uint64_t> KernelConfig::*knob;
    bool advised;
    const char* expected;
  };
  const Row rows[] = {{&KernelConfig::mthp_always, false, "pppp...."},
                      {&KernelConfig::mthp_madvise, false, "p......."},
                      {&KernelConfig::mthp_madvise, true, "pppp...."},
                      {&KernelConfig::mthp_inherit, false, "p......."},
                      {&KernelConfig::mthp_inherit, true, "pppp...."}};
  for (const Row& row : rows) {
    KernelConfig config = mthp("6.12");
    config.*row.knob = {16 << 10};
    ToyMachine m(toy_profile(), config);
    m.run([&](Task& t) {
      const VirtAddr at = kAligned + m.huge() - 4 * m.page();  // no room for a huge page
      m.mmap(t, 8, at);
      if (row.advised) sys_madvise(t, m.process(), at, m.huge(), Madvise::kHugepage);
      m.write(t, at);
      EXPECT_EQ(m.draw(at, 8), row.expected);
    });
  }
}

TEST(Mthp, StepsDownWhenMemoryIsInPieces) {
  KernelConfig config = mthp("6.12");
  config.mthp_always = {16 << 10};
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    // Every second page of the memory is free, and no four pages in a row.
    std::vector<Pfn> taken;
    AllocRequest request{.order = 0, .reclaim = GfpReclaim::kDirect};
    while (const auto page = m.kernel.phys().alloc_pages(request, 0))
      taken.push_back(*page);
    for (const Pfn page : taken)
      if (page.v % 2 == 1) m.kernel.phys().free_pages(page, 0, 0);
    m.kernel.phys().drain_all_pages();
    std::vector<Pfn> rows;
    request = {.order = 2, .reclaim = GfpReclaim::kNone};
    while (const auto page = m.kernel.phys().alloc_pages(request, 0)) rows.push_back(*page);
    m.write(t, kAligned);
    EXPECT_EQ(m.draw(kAligned, 8), "p.......");
    EXPECT_EQ(stat(m, 2).anon_fault_fallback, 1U);
    EXPECT_EQ(stat(m, 2).anon_fault_alloc, 0U);
    for (const Pfn page : taken)
      if (page.v % 2 == 0) m.kernel.phys().free_pages(page, 0, 0);
    for (const Pfn row : rows) m.kernel.phys().free_pages(row, 2, 0);
  });
}

// The part that one TLB entry covers, in pages.
std::uint64_t covered(ToyMachine& m, VirtAddr at) {
  return tlb_entry_range(m.pages(), at).bytes() / m.page();
}

TEST(Contpte, AnAlignedFolioIsOneTlbEntryUntilAPieceOfItChanges) {
  for (const auto& [preset, block] : {std::pair{"6.8", 1U}, {"6.12", 4U}}) {
    arch::Profile profile = toy_profile();
    profile.geometry.contpte_pages = 4;
    KernelConfig config = mthp(preset);
    config.mthp_always = {16 << 10};
    ToyMachine m(profile, config);
    m.run([&](Task& t) {
      m.mmap(t, 14, kAligned);
      m.write(t, kAligned);
      m.write(t, kAligned + 13 * m.page());
      EXPECT_EQ(m.draw(kAligned, 14), "pppp.........p");
      EXPECT_EQ(covered(m, kAligned + 2 * m.page()), block) << preset;
      EXPECT_EQ(covered(m, kAligned + 13 * m.page()), 1U) << "a single page";
      sys_mprotect(t, m.process(), kAligned, m.page(), kProtRead);
      EXPECT_EQ(covered(m, kAligned + 2 * m.page()), 1U) << "unfolded";
      sys_mprotect(t, m.process(), kAligned, 4 * m.page(), kProtRead);
      EXPECT_EQ(covered(m, kAligned + 2 * m.page()), block) << "and folded again";
      sys_madvise(t, m.process(), kAligned + 3 * m.page(), m.page(), Madvise::kDontneed);
      EXPECT_EQ(covered(m, kAligned + 2 * m.page()), 1U);
    });
  }
}

TEST(Contpte, AHugePageIsOneEntryOnEveryMachine) {
  ToyMachine m;
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
    EXPECT_EQ(covered(m, kAligned + m.page()), 8U);
  });
}

// --- prctl(PR_SET_THP_DISABLE) ---

TEST(ThpDisable, ExceptAdvisedLeavesMadvisedMappingsTheirHugePages) {
  ToyMachine m(toy_profile(), toy_config("6.18"));
  m.run([&](Task& t) {
    const auto set = [&](bool disable, ThpDisable flags) {
      return sys_prctl_set_thp_disable(t, m.process(), disable, flags);
    };
    EXPECT_EQ(set(false, ThpDisable::kExceptAdvised), Errno::kEINVAL);
    EXPECT_EQ(set(true, static_cast<ThpDisable>(1)), Errno::kEINVAL);
    EXPECT_EQ(set(true, ThpDisable::kExceptAdvised), Errno::kOk);
    m.mmap(t, 16, kAligned);
    sys_madvise(t, m.process(), kAligned + m.huge(), m.huge(), Madvise::kHugepage);
    m.write(t, kAligned);
    m.write(t, kAligned + m.huge());
    EXPECT_EQ(m.draw(kAligned, 16), "p.......HHHHHHHH");
    EXPECT_EQ(sys_madvise(t, m.process(), kAligned, m.huge(), Madvise::kCollapse),
              Errno::kOk)
        << "asked for";
    EXPECT_EQ(set(true, ThpDisable::kCompletely), Errno::kOk);
    sys_madvise(t, m.process(), kAligned, 2 * m.huge(), Madvise::kDontneed);
    m.write(t, kAligned + m.huge());
    EXPECT_EQ(m.draw(kAligned, 16), "........p.......");
  });
}

TEST(ThpDisable, HasNoFlagsBefore618) {
  ToyMachine m(toy_profile(), toy_config("6.12"));
  m.run([&](Task& t) {
    EXPECT_EQ(sys_prctl_set_thp_disable(t, m.process(), true, ThpDisable::kExceptAdvised),
              Errno::kEINVAL);
  });
}

// --- sysfs ---

std::string file(ToyMachine& m, const std::string& path) {
  for (const PseudoFile& f : thp_sysfs(m.kernel))
    if (f.path == path) return f.text;
  return "absent";
}

TEST(ThpSysfs, SpeaksAsTheKernelOfItsVersion) {
  KernelConfig config = toy_config("6.12");
  config.mthp_madvise = {16 << 10};
  ToyMachine m(toy_profile(), config);
  m.run([&](Task& t) {
    m.mmap(t, 8, kAligned);
    m.write(t, kAligned);
  });
  EXPECT_EQ(file(m, "enabled"), "[always] madvise never\n");
  EXPECT_EQ(file(m, "defrag"), "always defer defer+madvise [madvise] never\n");
  EXPECT_EQ(file(m, "hpage_pmd_size"), "32768\n");
  EXPECT_EQ(file(m, "khugepaged/pages_to_scan"), "64\n");
  EXPECT_EQ(file(m, "khugepaged/max_ptes_none"), "7\n");
  EXPECT_EQ(file(m, "hugepages-16kB/enabled"), "always inherit [madvise] never\n");
  EXPECT_EQ(file(m, "hugepages-32kB/enabled"), "always [inherit] madvise never\n");
  EXPECT_EQ(file(m, "hugepages-32kB/stats/anon_fault_alloc"), "1\n");
  EXPECT_EQ(file(m, "hugepages-32kB/stats/nr_anon"), "1\n");
  EXPECT_EQ(file(m, "hugepages-8kB/enabled"), "absent") << "order 1 is no anonymous size";
  ToyMachine old(toy_profile(), toy_config("6.8"));
  EXPECT_EQ(file(old, "hugepages-16kB/enabled"), "always inherit madvise [never]\n");
  EXPECT_EQ(file(old, "hugepages-32kB/stats/anon_fault_alloc"), "absent");
  EXPECT_EQ(file(old, "shrink_underused"), "absent");
}

}  // namespace
}  // namespace faultline::kernel::testing
