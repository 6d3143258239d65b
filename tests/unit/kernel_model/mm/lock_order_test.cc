// SPDX-License-Identifier: Apache-2.0
//
// The modelled kernel's own locks, taken the wrong way round on purpose.
#include <gtest/gtest.h>

#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr Centre kBroken{"broken_kernel_function", true};

TEST(LockOrderDeathTest, MmapLockUnderAPageTableLockAbortsWithBothStacks) {
  ToyMachine m;
  const VirtAddr at{8 << 20};
  m.run([&](Task& task) {
    m.mmap(task, 1, at);
    m.write(task, at);  // as every fault: mmap_lock, then the page-table lock
  });
  m.add(
      [&](Task& task) {
        const Scope scope(task, kBroken);
        PageTables& pages = m.pages();
        Ptl lock(task, pages, pages.tree().find_pte_table(at)->page);
        m.mm().mmap_read_lock(task);
      },
      m.engine.now().since_start());

  EXPECT_DEATH(
      m.run_all(),
      "holds \"pte_ptl\", taken in\n  broken_kernel_function\n"
      "and takes \"mmap_lock\" in\n  broken_kernel_function\n"
      "but before, at .* holds \"mmap_lock\", taken in\n.*do_user_addr_fault(.|\n)*"
      "and takes \"pte_ptl\" in\n.*do_anonymous_page");
}

// 6.4 and later: a fault that is inside a VMA must not wait for mmap_lock, since its holder
// may wait for the faults inside.
TEST(LockOrderDeathTest, MmapLockInsideAVmaAborts) {
  ToyMachine m(toy_profile(), toy_config("6.12"));
  const VirtAddr at{8 << 20};
  m.run([&](Task& task) {
    m.mmap(task, 2, at);
    m.write(task, at);
    sys_mprotect(task, m.process(), at, m.page(), kProtRead);  // mmap_lock, then the VMA's
  });
  m.add(
      [&](Task& task) {
        const Scope scope(task, kBroken);
        ASSERT_TRUE(m.mm().vma_start_read(task, *m.mm().vma_at(at)));
        m.mm().mmap_read_lock(task);
      },
      m.engine.now().since_start());

  EXPECT_DEATH(m.run_all(),
               "holds \"vma->vm_lock\"(.|\n)*takes \"mmap_lock\"(.|\n)*but before");
}

}  // namespace
}  // namespace faultline::kernel::testing
