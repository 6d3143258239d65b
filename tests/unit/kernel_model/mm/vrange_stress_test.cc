// SPDX-License-Identifier: Apache-2.0
//
// Threads of several processes mark, un-mark, write, protect, drop and fork at the same
// time, while memory is short and swap is at hand.  Each has an area of its own and knows
// what it must hold: what was un-marked as intact is intact, and SIGBUS comes from volatile
// memory only.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/rng.h"
#include "tests/unit/kernel_model/mm/vrange_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;
using enum VrangeVersion;

constexpr std::uint64_t kPages = 8192;

struct Setting {
  VrangeVersion version;
  bool huge_pages;
  unsigned queue_depth;
  bool forks;
};

class Area {
 public:
  Area(VrangeMachine& m, Task& task, Process& process, VirtAddr start, Rng rng)
      : m_(m), task_(task), process_(process), start_(start), rng_(rng) {
    EXPECT_TRUE(sys_mmap(task, process, start, kPages * k4K, kRw, kAnon | kMapFixed).ok());
  }

  void step(bool forks) {
    from_ = rng_.below(kPages);
    to_ = from_ + 1 + rng_.below(std::min<std::uint64_t>(700, kPages - from_));
    writes_first_ = rng_.below(2) == 0;
    switch (rng_.below(forks ? 9 : 8)) {
      case 0:
      case 1:
        EXPECT_TRUE(call(kVrangeVolatile).ok());
        for (std::uint64_t i = from_; i < to_; ++i) volatile_[i] = true;
        break;
      case 2:
      case 3:
        return unmark();
      case 4:
        if (rng_.below(3) == 0) drop();
        break;
      case 5:
        for (const unsigned prot : {unsigned{kProtRead}, kRw})
          EXPECT_EQ(sys_mprotect(task_, process_, page(from_), bytes(), prot), Errno::kOk);
        break;
      case 8:
        return fork();
      default:
        for (std::uint64_t i = from_; i < to_; ++i)
          if (!visit(i)) return;
    }
  }
  std::uint64_t told_lost = 0, sigbus = 0, checked = 0;

 private:
  static constexpr int kUnknown = -1;
  [[nodiscard]] VirtAddr page(std::uint64_t i) const { return start_ + i * k4K; }
  [[nodiscard]] std::uint64_t bytes() const { return (to_ - from_) * k4K; }
  SysResult<std::uint64_t> call(int mode, int* purged = nullptr) {
    return sys_vrange(task_, process_, page(from_), bytes(), mode, {}, purged);
  }

  void unmark() {
    int purged = 0;
    const auto answer = call(kVrangeNovolatile, &purged);
    ASSERT_TRUE(answer.ok());
    const bool lost = m_.kernel->config().vrange >= k8 ? purged != 0 : answer.value() == 1;
    told_lost += lost ? 1 : 0;
    for (std::uint64_t i = from_; i < to_; ++i) {
      if (volatile_[i] && lost) byte_[i] = kUnknown;
      volatile_[i] = false;
    }
  }
  void drop() {
    EXPECT_EQ(sys_madvise(task_, process_, page(from_), bytes(), Madvise::kDontneed),
              Errno::kOk);
    for (std::uint64_t i = from_; i < to_; ++i) byte_[i] = 0;
  }
  void fork() {
    const auto child = sys_fork(task_, process_);
    if (!child.ok()) return;
    sys_nanosleep(task_, process_,
                  Duration::us(static_cast<std::int64_t>(rng_.below(3000))));
    if (rng_.below(2) == 0) sys_execve(task_, *child.value());
    sys_exit_group(task_, *child.value());
  }

  // A huge page's view names its head.
  [[nodiscard]] Pfn frame(std::uint64_t i, const PageView& view) const {
    const auto piece = static_cast<std::uint32_t>(page(i).v / k4K % 512);
    return view.kind == PageView::kHuge ? Pfn{view.pfn.v + piece} : view.pfn;
  }
  // Reads, checks and writes; false: SIGBUS.  What is written to first may get a huge page.
  bool visit(std::uint64_t i) {
    if (!access(i, writes_first_ ? Access::kWrite : Access::kRead)) return false;
    const PageView view = process_.mm().pages().look(page(i));
    const bool zero = view.kind == PageView::kZero || view.kind == PageView::kHugeZero;
    const bool there = view.kind == PageView::kBase || view.kind == PageView::kHuge;
    if ((zero || there) && byte_[i] != kUnknown && !volatile_[i]) {
      EXPECT_EQ(zero ? 0 : m_.kernel->contents()->byte(frame(i, view)), byte_[i])
          << "page " << i;
      ++checked;
    }
    if (!access(i, Access::kWrite)) return false;
    const PageView now = process_.mm().pages().look(page(i));
    byte_[i] = kUnknown;
    if (now.kind != PageView::kBase && now.kind != PageView::kHuge) return true;
    const auto value = static_cast<std::uint8_t>(1 + rng_.below(255));
    m_.kernel->contents()->wrote(frame(i, now), value);
    byte_[i] = value;
    return true;
  }
  bool access(std::uint64_t i, Access how) {
    const Signal signal = user_access(task_, process_, page(i), how);
    if (signal == Signal::kNone) return true;
    EXPECT_EQ(signal, Signal::kBus);
    EXPECT_TRUE(volatile_[i]) << "page " << i;
    ++sigbus;
    return false;
  }

  VrangeMachine& m_;
  Task& task_;
  Process& process_;
  VirtAddr start_;
  Rng rng_;
  std::uint64_t from_ = 0, to_ = 0;
  bool writes_first_ = false;
  std::vector<int> byte_ = std::vector<int>(kPages, 0);
  std::vector<bool> volatile_ = std::vector<bool>(kPages, false);
};

void play(const Setting& s, std::uint64_t seed) {
  VrangeMachine m(s.version, [&](KernelConfig& c) {
    if (s.huge_pages) c.thp_enabled = ThpEnabled::kAlways;
    c.swap_size = 512 * kMiB;
    c.swap_queue_depth = s.queue_depth;
  });
  Process* const processes[] = {m.process, &m.kernel->create_process("second"),
                                &m.kernel->create_process("third")};
  std::uint64_t told_lost = 0, sigbus = 0, checked = 0;
  for (unsigned t = 0; t < 6; ++t)
    m.engine.spawn("thread", [&, t](Task& task) {
      const VirtAddr start{0x1000'0000 * std::uint64_t{t + 1} + t % 2 * 3 * k4K};
      Area area(m, task, *processes[t / 2], start, Rng(seed * 100 + t, "area"));
      for (unsigned step = 0; step < 150; ++step) area.step(s.forks);
      told_lost += area.told_lost;
      sigbus += area.sigbus;
      checked += area.checked;
    });
  Process& hog = m.kernel->create_process("hog");
  m.engine.spawn("hog", [&](Task& task) {
    Rng rng(seed, "hog");
    const VirtAddr at = sys_mmap(task, hog, {}, 96 * kMiB, kRw, kAnon).value();
    for (unsigned i = 0; i < 250; ++i) {
      EXPECT_EQ(
          user_touch(task, hog, at + rng.below(94) * kMiB, 2 * kMiB, k4K, Access::kWrite),
          Signal::kNone);
      sys_nanosleep(task, hog, Duration::us(300));
    }
  });
  m.engine.run();
  check_invariants(*m.kernel);
  EXPECT_GT(told_lost, 5U);
  EXPECT_GT(sigbus, 5U);
  EXPECT_GT(checked, 10'000U);
  EXPECT_GT(m.vmstat().pswpout, 1'000U);
}

TEST(VrangeStress, WhatIsToldIntactIsIntact) {
  for (const VrangeVersion version : {k7, k8, k9, k10, kVma})
    for (const bool huge_pages : {false, true})
      for (const bool forks : {false, true}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(version) << ", huge pages "
                                          << huge_pages << ", forks " << forks);
        play({version, huge_pages, forks ? 128U : 0U, forks}, 1);
      }
}

// Pages shared by fork, of which reclaim has unmapped a part when somebody wants them back.
TEST(VrangeStress, SharedPagesOnTheirWayToSwap) {
  for (std::uint64_t seed = 2; seed <= 7; ++seed) play({k7, true, 128, true}, seed);
}

}  // namespace
}  // namespace faultline::kernel
