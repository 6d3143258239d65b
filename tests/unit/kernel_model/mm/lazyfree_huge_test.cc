// SPDX-License-Identifier: Apache-2.0
//
// Huge pages that MADV_FREE has marked, when memory is short.
#include <gtest/gtest.h>

#include "kernel_model/proc/smaps.h"
#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr VirtAddr kArea{0x4000'0000};
constexpr std::uint64_t kBytes = 64 * kMiB, kHuge = 2 * kMiB;

struct LazyHuge : Small {
  explicit LazyHuge(const char* preset)
      : Small([&](KernelConfig& c) {
          c = load_preset(preset);
          c.thp_enabled = ThpEnabled::kAlways;
          c.memcg_max = 72 * kMiB;
        }) {}
  // 32 huge pages, all marked; the first is then written to, the second is read.
  void mark(Task& task) {
    ASSERT_TRUE(sys_mmap(task, *process, kArea, kBytes, kRw, kAnon | kMapFixed).ok());
    EXPECT_EQ(touch(task, kArea, kBytes), Signal::kNone);
    for (VirtAddr at = kArea; at < kArea + kBytes; at = at + k4K)
      kernel->contents()->wrote(frame(at), 7);
    EXPECT_EQ(sys_madvise(task, *process, kArea, kBytes, Madvise::kFree), Errno::kOk);
    EXPECT_EQ(touch(task, kArea, k4K), Signal::kNone);
    EXPECT_EQ(touch(task, kArea + kHuge, k4K, Access::kRead), Signal::kNone);
  }
  void use(Task& task, std::uint64_t bytes) {
    EXPECT_EQ(touch(task, map(task, bytes), bytes), Signal::kNone);
  }
  PageView look(VirtAddr at) { return process->mm().pages().look(at); }
  Pfn frame(VirtAddr at) {  // a huge page's view names its head
    const PageView view = look(at);
    const auto piece = static_cast<std::uint32_t>((at.v & (kHuge - 1)) / k4K);
    return view.kind == PageView::kHuge ? Pfn{view.pfn.v + piece} : view.pfn;
  }
};

// Measured on 6.18, the limit lowered, 64 MB lazily freed: 10,752 pages dropped, which are
// 21 whole huge pages, and none split.
TEST(LazyfreeHuge, GoesWholeFrom5_19On) {
  for (const char* preset : {"6.1", "6.18"}) {
    LazyHuge m(preset);
    m.run([&](Task& task) {
      m.mark(task);
      m.use(task, 40 * kMiB);
      EXPECT_GT(m.vmstat().pglazyfreed, 8'000U);
      EXPECT_EQ(m.vmstat().pglazyfreed % 512, 0U);
      EXPECT_EQ(m.vmstat().thp_split_page, 0U);
      EXPECT_EQ(m.vmstat().thp_split_pmd, m.vmstat().pglazyfreed / 512);
      EXPECT_EQ(m.look(kArea).kind, PageView::kHuge);
      EXPECT_EQ(m.look(kArea + kHuge).kind, PageView::kHuge);
      EXPECT_EQ(m.vmstat().oom_kill, 0U);
    });
  }
}

TEST(LazyfreeHuge, IsSplitBefore) {
  LazyHuge m("5.14");
  m.run([&](Task& task) {
    m.mark(task);
    m.use(task, 40 * kMiB);
    EXPECT_GT(m.vmstat().pglazyfreed, 8'000U);
    EXPECT_GE(m.vmstat().thp_split_page, m.vmstat().pglazyfreed / 512);
  });
}

// One that was written to and is looked at becomes an ordinary page, mapped in pieces.
TEST(LazyfreeHuge, WrittenToItStaysWhole) {
  LazyHuge m("6.18");
  m.run([&](Task& task) {
    m.mark(task);
    m.use(task, 64 * kMiB);
    EXPECT_EQ(m.look(kArea).kind, PageView::kBase);
    EXPECT_FALSE(m.look(kArea).lazyfree);
    for (VirtAddr at = kArea; at < kArea + kHuge; at = at + k4K)
      EXPECT_EQ(m.kernel->contents()->byte(m.frame(at)), 7);
    EXPECT_EQ(m.vmstat().thp_split_page, 0U);
  });
}

}  // namespace
}  // namespace faultline::kernel
