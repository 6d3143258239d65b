// SPDX-License-Identifier: Apache-2.0
//
// What a fork copies of the address space, and what an exit gives back.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

Process& fork_of(Thread& t) {
  const SysResult<Process*> child = sys_fork(t.task, t.process);
  EXPECT_TRUE(child.ok()) << errno_name(child.error());
  return *child.value();
}

TEST(Fork, CopiesVmasButWhatAdviceKeepsBack) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(8 * page);
    EXPECT_EQ(user_touch(task, m.process(), at, 8 * page, page, Access::kWrite),
              Signal::kNone);
    EXPECT_EQ(t.madvise(at + 2 * page, page, Madvise::kDontfork), Errno::kOk);
    EXPECT_EQ(t.madvise(at + 4 * page, page, Madvise::kWipeonfork), Errno::kOk);
    EXPECT_EQ(sys_mlock(task, m.process(), at + 6 * page, page), Errno::kOk);
    Process& child = fork_of(t);
    check_invariants(m.kernel());

    Mm& mm = child.mm();
    EXPECT_EQ(mm.vmas.size(), m.mm().vmas.size() - 1);
    EXPECT_EQ(mm.vma_at(at + 2 * page), nullptr) << "DONTFORK";
    EXPECT_EQ(mm.total_vm, m.mm().total_vm - 1);
    EXPECT_EQ(mm.locked_vm, 0U) << "locks aren't inherited";
    EXPECT_EQ(mm.vma_at(at + 6 * page)->vm_flags & VM_LOCKED, 0U);
    EXPECT_TRUE(mm.pages().accessible(at, Access::kRead));
    EXPECT_FALSE(mm.pages().accessible(at + 4 * page, Access::kRead)) << "WIPEONFORK";
    EXPECT_EQ(mm.brk, m.mm().brk);
  });
}

TEST(Fork, BothSidesGetPagesOfTheirOwnByWriting) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(m.page());
    EXPECT_EQ(t.write(at), Signal::kNone);
    Process& child = fork_of(t);
    const Pfn shared = m.mm().pages().look(at).pfn;
    EXPECT_EQ(child.mm().pages().look(at).pfn, shared);
    EXPECT_EQ(user_access(task, child, at, Access::kWrite), Signal::kNone);
    EXPECT_NE(child.mm().pages().look(at).pfn, shared);
    EXPECT_EQ(t.write(at), Signal::kNone);
    EXPECT_EQ(m.mm().pages().look(at).pfn, shared) << "the last user keeps it";
    check_invariants(m.kernel());
  });
}

TEST(Fork, AFaultedVmaOfTheChildNoLongerTakesNewRangesOver) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t page = m.page();
    const VirtAddr at = t.mmap(4 * page);
    t.munmap(at, page);
    EXPECT_EQ(t.write(at + page), Signal::kNone);
    Process& child = fork_of(t);
    const auto vmas_after_mmap = [&](Process& process) {
      EXPECT_TRUE(sys_mmap(task, process, at, page, kRw, kAnon | kMapFixed).ok());
      return process.mm().vma_at(at) == process.mm().vma_at(at + page);
    };
    EXPECT_TRUE(vmas_after_mmap(m.process()));
    EXPECT_FALSE(vmas_after_mmap(child)) << "its chain of owners is not singular";
  });
}

TEST(Fork, ChargesTheCopy) {
  Machine m("x86-4k", "6.1",
            [](KernelConfig& c) { c.overcommit_memory = 2, c.overcommit_ratio = 30; });
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t before = m.kernel().committed_pages;
    const std::uint64_t quarter = m.profile().memory_bytes() / 5;
    t.mmap(quarter & ~(m.page() - 1));
    EXPECT_EQ(sys_fork(task, m.process()).error(), Errno::kENOMEM);
    check_invariants(m.kernel());
    EXPECT_LT(m.kernel().committed_pages, before + 2 * quarter / m.page());
  });
}

TEST(Exit, GivesEverythingBack) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t committed = m.kernel().committed_pages;
    Process& child = fork_of(t);
    EXPECT_TRUE(sys_mmap(task, child, {}, kMiB, kRw, kAnon | kMapPopulate).ok());
    sys_exit_group(task, child);
    check_invariants(m.kernel());
    EXPECT_EQ(child.mm().vmas.size(), 0U);
    EXPECT_EQ(child.mm().total_vm, 0U);
    EXPECT_EQ(child.mm().rss(), 0U);
    EXPECT_EQ(child.mm().pages().pgtables_bytes(), 0U);
    EXPECT_EQ(m.kernel().committed_pages, committed);
  });
}

TEST(Exec, StartsAfreshInTheSameProcess) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    Process& child = fork_of(t);
    EXPECT_TRUE(sys_mmap(task, child, {}, kMiB, kRw, kAnon | kMapPopulate).ok());
    sys_execve(task, child);
    check_invariants(m.kernel());
    EXPECT_EQ(child.mm().vmas.size(), m.profile().layout.vmas.size());
    EXPECT_EQ(child.mm().brk.v, m.profile().layout.brk);
    const VirtAddr first = sys_mmap(task, child, {}, m.page(), kRw, kAnon).value();
    EXPECT_EQ(first, t.mmap(m.page())) << "addresses as at any start";
  });
}

TEST(Fork, KeepsTheParentsFaultsOut) {
  Machine m;
  Time faulted, forked;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr at = t.mmap(64 * kMiB);
    EXPECT_EQ(user_touch(task, m.process(), at, 32 * kMiB, m.page(), Access::kWrite),
              Signal::kNone);
    m.engine().spawn(
        "fault",
        [&, at](Task& other) {
          other.charge(Duration::us(30));
          EXPECT_EQ(user_access(other, m.process(), at + 48 * kMiB, Access::kWrite),
                    Signal::kNone);
          faulted = other.now();
        },
        task.now());
    fork_of(t);
    forked = task.now();
  });
  EXPECT_GT(faulted + Duration::us(30), forked);
}

}  // namespace
}  // namespace faultline::kernel::testing
