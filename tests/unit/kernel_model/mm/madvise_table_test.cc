// SPDX-License-Identifier: Apache-2.0
//
// Which call knows what, by kernel version and kind of mapping, as tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr std::uint64_t kHuge = 2 * kMiB;

// A private mapping of one huge page's range, its pages small and touched.
VirtAddr touched_range(Thread& t) {
  const VirtAddr wide = t.mmap(2 * kHuge);
  const VirtAddr at{(wide.v + kHuge - 1) & ~(kHuge - 1)};
  EXPECT_EQ(t.write(at), Signal::kNone);
  return at;
}

Errno advise_on(std::string_view preset, Madvise advice) {
  Machine m("x86-4k", preset);
  Errno answer{};
  m.run([&](Task& task) {
    Thread t(task, m);
    answer = t.madvise(touched_range(t), kHuge, advice);
  });
  return answer;
}

TEST(MadviseTable, EachAdviceIsKnownFromItsVersionOn) {
  struct Row {
    Madvise advice;
    const char* since;  // the first preset that knows it
  };
  const Row rows[] = {{Madvise::kNormal, "3.9"},         {Madvise::kRandom, "3.9"},
                      {Madvise::kSequential, "3.9"},     {Madvise::kWillneed, "3.9"},
                      {Madvise::kDontneed, "3.9"},       {Madvise::kDontfork, "3.9"},
                      {Madvise::kDofork, "3.9"},         {Madvise::kHugepage, "3.9"},
                      {Madvise::kNohugepage, "3.9"},     {Madvise::kDontdump, "3.9"},
                      {Madvise::kDodump, "3.9"},         {Madvise::kFree, "4.15"},
                      {Madvise::kWipeonfork, "4.15"},    {Madvise::kKeeponfork, "4.15"},
                      {Madvise::kCold, "5.14"},          {Madvise::kPageout, "5.14"},
                      {Madvise::kPopulateRead, "5.14"},  {Madvise::kPopulateWrite, "5.14"},
                      {Madvise::kDontneedLocked, "6.1"}, {Madvise::kCollapse, "6.1"},
                      {Madvise::kGuardInstall, "6.18"},  {Madvise::kGuardRemove, "6.18"}};
  for (const Row& row : rows) {
    const unsigned since = KernelConfig::kernel_version(row.since);
    for (const std::string& preset : list_presets())
      EXPECT_EQ(advise_on(preset, row.advice),
                KernelConfig::kernel_version(preset) >= since ? Errno::kOk : Errno::kEINVAL)
          << "advice " << static_cast<int>(row.advice) << " in " << preset;
  }
}

TEST(MadviseTable, LockedMemoryRefusesWhatWouldDropOrAgeItsPages) {
  struct Row {
    Madvise advice;
    Errno answer;
  };
  const Row rows[] = {
      {Madvise::kDontneed, Errno::kEINVAL},     {Madvise::kDontneedLocked, Errno::kOk},
      {Madvise::kFree, Errno::kEINVAL},         {Madvise::kCold, Errno::kEINVAL},
      {Madvise::kPageout, Errno::kEINVAL},      {Madvise::kRemove, Errno::kEINVAL},
      {Madvise::kGuardInstall, Errno::kEINVAL}, {Madvise::kWipeonfork, Errno::kOk},
      {Madvise::kHugepage, Errno::kOk},         {Madvise::kPopulateWrite, Errno::kOk},
      {Madvise::kCollapse, Errno::kOk}};
  for (const Row& row : rows) {
    Machine m("x86-4k", "6.18");
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr at = touched_range(t);
      EXPECT_EQ(sys_mlock(task, m.process(), at, kHuge), Errno::kOk);
      EXPECT_EQ(t.madvise(at, kHuge, row.advice), row.answer)
          << static_cast<int>(row.advice);
    });
  }
}

TEST(MadviseTable, DontneedLockedDropsLockedPagesAndLeavesThemLocked) {
  Machine m("x86-4k", "6.1");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(4 * m.page());
    EXPECT_EQ(sys_mlock(task, m.process(), at, 4 * m.page()), Errno::kOk);
    EXPECT_EQ(t.madvise(at, 2 * m.page(), Madvise::kDontneedLocked), Errno::kOk);
    EXPECT_FALSE(m.mm().pages().accessible(at, Access::kRead));
    EXPECT_TRUE(m.mm().pages().accessible(at + 2 * m.page(), Access::kRead));
    EXPECT_EQ(m.maps(at, 4), (std::vector<std::string>{"0-4 rw- lo"}));
  });
}

TEST(MadviseTable, SharedMappingsTakeWhatDoesNotNeedPrivatePages) {
  Machine m("x86-4k", "6.18");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at =
        t.mmap_at({}, 4 * m.page(), kRw, kMapShared | kMapAnonymous).value();
    EXPECT_EQ(t.madvise(at, m.page(), Madvise::kFree), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(at, m.page(), Madvise::kWipeonfork), Errno::kEINVAL);
    EXPECT_EQ(t.madvise(at, m.page(), Madvise::kDontfork), Errno::kOk);
  });
}

TEST(Noreplace, Before417IsAHintThatMayBeMovedAway) {
  for (const auto& [preset, strict] : {std::pair{"4.15", false}, {"5.14", true}}) {
    Machine m("x86-4k", preset);
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr there = t.mmap(4 * m.page());
      const auto taken =
          t.mmap_at(there + m.page(), m.page(), kRw, kAnon | kMapFixedNoreplace);
      if (strict) {
        EXPECT_EQ(taken.error(), Errno::kEEXIST);
      } else {
        EXPECT_TRUE(taken.ok());
        EXPECT_TRUE(taken.value() < there || taken.value() >= there + 4 * m.page());
      }
      EXPECT_EQ(t.munmap(there, m.page()), Errno::kOk);
      EXPECT_EQ(t.mmap_at(there, m.page(), kRw, kAnon | kMapFixedNoreplace).value(), there);
      EXPECT_EQ(t.mmap_at(there + 1, m.page(), kRw, kAnon | kMapFixedNoreplace).error(),
                strict ? Errno::kEINVAL : Errno::kOk)
          << "an unaligned hint is rounded";
    });
  }
}

TEST(MremapTable, DontunmapIsKnownFrom57On) {
  for (const auto& [preset, answer] :
       {std::pair{"4.15", Errno::kEINVAL}, {"5.3", Errno::kEINVAL}, {"5.14", Errno::kOk}}) {
    Machine m("x86-4k", preset);
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr at = t.mmap(m.page());
      EXPECT_EQ(t.mremap(at, m.page(), m.page(), kMremapMaymove | kMremapDontunmap).error(),
                answer)
          << preset;
    });
  }
}

TEST(MprotectTable, GrowsdownReachesDownToTheStartOfAStackOnly) {
  constexpr unsigned kGrowsdown = 0x01000000, kGrowsup = 0x02000000;
  Machine m("x86-4k", "6.1");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(4 * m.page());
    EXPECT_EQ(t.mprotect(at, m.page(), kRw | kGrowsdown | kGrowsup), Errno::kEINVAL);
    EXPECT_EQ(t.mprotect(at + 1, m.page(), kRw | kGrowsdown | kGrowsup), Errno::kEINVAL);
    EXPECT_EQ(t.mprotect(at, m.page(), kRw | kGrowsdown), Errno::kEINVAL) << "no stack";
    EXPECT_EQ(t.mprotect(at, m.page(), kRw | kGrowsup), Errno::kEINVAL);
    const VirtAddr stack = t.mmap_at({}, 8 * m.page(), kRw, kAnon | kMapGrowsdown).value();
    EXPECT_EQ(t.mprotect(stack + 4 * m.page(), m.page(), kProtRead | kGrowsdown),
              Errno::kOk);
    EXPECT_EQ(m.mm().vma_at(stack)->vm_flags & VM_WRITE, 0U);
    EXPECT_NE(m.mm().vma_at(stack + 5 * m.page())->vm_flags & VM_WRITE, 0U);
  });
}

}  // namespace
}  // namespace faultline::kernel::testing
