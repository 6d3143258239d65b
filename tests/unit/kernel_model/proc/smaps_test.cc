// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/smaps.h"

#include <gtest/gtest.h>

#include "kernel_model/proc/maps.h"
#include "kernel_model/proc/system_views.h"
#include "kernel_model/proc/vmstat.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

std::unique_ptr<Machine> machine(ThpEnabled thp, std::string_view preset = "6.1") {
  return std::make_unique<Machine>("x86-4k", preset,
                                   [thp](KernelConfig& c) { c.thp_enabled = thp; });
}

// 8 MiB at a 2 MiB boundary with nothing beside it.
VirtAddr aligned(Thread& t) {
  const VirtAddr p = t.mmap(16 * kMiB, kProtNone);
  const VirtAddr at{(p.v + 2 * kMiB - 1) & ~(2 * kMiB - 1)};
  return t.mmap_at(at, 8 * kMiB, kRw, kAnon | kMapFixed).value();
}

TEST(Smaps, CountsEachKindOfPageOnce) {
  const auto m = machine(ThpEnabled::kAlways);
  m->run([&](Task& task) {
    Thread t(task, *m);
    const VirtAddr p = aligned(t);
    t.write(p);  // a huge page
    EXPECT_EQ(t.madvise(p + 4 * kMiB, 4 * kMiB, Madvise::kNohugepage), Errno::kOk);
    t.write(p + 4 * kMiB);  // a small one
    t.read(p + 5 * kMiB);   // the zero page: nobody's
    const MemSizeStats huge = smap_gather_stats(m->mm(), *m->mm().vma_at(p));
    EXPECT_EQ(huge.rss, 2 * kMiB);
    EXPECT_EQ(huge.anonymous, 2 * kMiB);
    EXPECT_EQ(huge.anonymous_thp, 2 * kMiB);
    EXPECT_EQ(huge.private_dirty, 2 * kMiB);
    EXPECT_EQ(huge.referenced, 2 * kMiB);
    const MemSizeStats small = smap_gather_stats(m->mm(), *m->mm().vma_at(p + 4 * kMiB));
    EXPECT_EQ(small.rss, 4 * kKiB);
    EXPECT_EQ(small.pss, 4 * kKiB);
    EXPECT_EQ(small.anonymous_thp, 0U);
  });
}

TEST(Smaps, RollupIsTheSumAndAgreesWithRss) {
  const auto m = machine(ThpEnabled::kNever);
  m->run([&](Task& task) {
    Thread t(task, *m);
    const VirtAddr p = t.mmap(64 * kKiB);
    for (std::uint64_t i = 0; i < 16; i += 2) t.write(p + i * 4 * kKiB);
    const MemSizeStats all = smaps_rollup(m->mm());
    EXPECT_EQ(all.rss, m->mm().rss() * 4 * kKiB);
    EXPECT_EQ(all.anonymous, m->mm().rss_anon * 4 * kKiB);
    EXPECT_EQ(all.rss, all.private_clean + all.private_dirty);
  });
}

// As 6.1 prints it.
TEST(Smaps, TextIsTheKernels) {
  const auto m = machine(ThpEnabled::kAlways);
  m->run([&](Task& task) {
    Thread t(task, *m);
    const VirtAddr p = aligned(t);
    t.write(p);
    const std::string text = smaps_text(m->mm());
    const std::string header = map_line(m->mm(), *m->mm().vma_at(p));
    const std::size_t at = text.find(header);
    ASSERT_NE(at, std::string::npos);
    EXPECT_TRUE(text.substr(at + header.size())
                    .starts_with("Size:               8192 kB\n"
                                 "KernelPageSize:        4 kB\n"
                                 "MMUPageSize:           4 kB\n"
                                 "Rss:                2048 kB\n"
                                 "Pss:                2048 kB\n"
                                 "Pss_Dirty:          2048 kB\n"
                                 "Shared_Clean:          0 kB\n"
                                 "Shared_Dirty:          0 kB\n"
                                 "Private_Clean:         0 kB\n"
                                 "Private_Dirty:      2048 kB\n"
                                 "Referenced:         2048 kB\n"
                                 "Anonymous:          2048 kB\n"
                                 "LazyFree:              0 kB\n"
                                 "AnonHugePages:      2048 kB\n"
                                 "ShmemPmdMapped:        0 kB\n"
                                 "FilePmdMapped:         0 kB\n"
                                 "Shared_Hugetlb:        0 kB\n"
                                 "Private_Hugetlb:       0 kB\n"
                                 "Swap:                  0 kB\n"
                                 "SwapPss:               0 kB\n"
                                 "Locked:                0 kB\n"
                                 "THPeligible:    1\n"
                                 "VmFlags: rd wr mr mw me ac \n"))
        << text.substr(at);
  });
}

TEST(Smaps, NewerKernelsPrintMore) {
  const auto m = machine(ThpEnabled::kAlways, "6.18");
  m->run([&](Task&) {
    const std::string text = smaps_text(m->mm());
    EXPECT_NE(text.find("KSM:                   0 kB\n"), std::string::npos);
    EXPECT_NE(text.find("THPeligible:           0\n"), std::string::npos);
  });
}

TEST(SystemViews, VmstatNamesWhatTheVersionHas) {
  const auto m = machine(ThpEnabled::kAlways);
  m->run([&](Task& task) {
    Thread t(task, *m);
    t.write(aligned(t));
    const std::string text = vmstat_text(m->kernel());
    EXPECT_NE(text.find("\nthp_fault_alloc 1\n"), std::string::npos);
    EXPECT_NE(text.find("\nthp_fault_fallback_charge 0\n"), std::string::npos);
    EXPECT_EQ(text.find("thp_underused_split_page"), std::string::npos);
  });
}

TEST(SystemViews, MeminfoAndBuddyinfoSayWhatIsFree) {
  const auto m = machine(ThpEnabled::kAlways);
  m->run([&](Task& task) {
    Thread t(task, *m);
    t.write(aligned(t));
    EXPECT_NE(meminfo_text(m->kernel()).find("AnonHugePages:      2048 kB\n"),
              std::string::npos);
    const std::string buddy = buddyinfo_text(m->kernel());
    EXPECT_TRUE(buddy.starts_with("Node 0, zone   Normal "));
    EXPECT_EQ(buddy.find('\n'), buddy.size() - 1);
    EXPECT_EQ(buddy.size(), std::string("Node 0, zone   Normal ").size() + 11 * 7 + 1);
  });
}

}  // namespace
}  // namespace faultline::kernel
