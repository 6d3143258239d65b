// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/lock_stat.h"

#include <gtest/gtest.h>

namespace faultline::kernel {
namespace {

using namespace time_literals;

TEST(LockStat, OneLineASide) {
  LockRegistry locks;
  LockStats& lock = locks.of("&mm->mmap_lock");
  lock.write.acquired = 2;
  lock.write.held(1500_ns);
  lock.write.held(500_ns);
  lock.read.acquired = 1;
  lock.read.held(2_us);
  const std::string text = lock_stat_text(locks);
  EXPECT_TRUE(text.starts_with("lock_stat version 0.4\n-----"));
  EXPECT_NE(
      text.find("                        &mm->mmap_lock-W:             0              0 "
                "          0.00           0.00           0.00           0.00 "
                "             2              2           0.50           1.50           "
                "2.00           1.00\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("&mm->mmap_lock-R:"), std::string::npos);
  EXPECT_EQ(text.find("....."), std::string::npos);  // nobody waited: no contention points
}

TEST(LockStat, WaitsAreListedWithTheirPlaces) {
  static constexpr Centre kFault{"do_page_fault", true}, kMunmap{"__vm_munmap", true};
  CentreTree tree;
  LockRegistry locks;
  LockStats& lock = locks.of("&mm->mmap_lock");
  lock.write.acquired = lock.read.acquired = 1;
  lock.read.waited(3_us);
  lock.blame(tree.child(tree.root(), kFault), LockMode::kRead,
             tree.child(tree.root(), kMunmap), LockMode::kWrite, 3_us);
  const std::string text = lock_stat_text(locks);
  EXPECT_NE(text.find("          &mm->mmap_lock              1                         "
                      "[<0>] do_page_fault\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("[<0>] __vm_munmap\n"), std::string::npos);
  EXPECT_NE(text.find("....."), std::string::npos);
}

TEST(LockStat, TheMostContendedComesFirst) {
  LockRegistry locks;
  locks.of("quiet").write.acquired = 1;
  LockStats& busy = locks.of("busy");
  busy.write.acquired = 1;
  busy.write.waited(1_us);
  const std::string text = lock_stat_text(locks);
  EXPECT_LT(text.find("busy:"), text.find("quiet:"));
}

}  // namespace
}  // namespace faultline::kernel
