// SPDX-License-Identifier: Apache-2.0
//
// Random accesses, discards, protections and huge pages, held against naive arrays that
// learn of each step what a person would tell them.
#include <gtest/gtest.h>

#include "tests/support/random.h"
#include "tests/unit/kernel_model/tlb/naive_tlb.h"
#include "tests/unit/kernel_model/tlb/tlb_machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr VirtAddr kSmall{32ULL << 20}, kHuge{48ULL << 20};
constexpr std::uint64_t kPages = 64;  // of each area

using faultline::testing::Random;

// What the machine's TLB must count, by the naive arrays of its one CPU.
struct Expected {
  NaiveTlb first, second;
  std::uint64_t l1_misses = 0, walks = 0, vain_walks = 0;

  void access(VirtAddr at, std::uint64_t size) {
    const auto block = NaiveTlb::block_of(at, size);
    if (first.holds(block)) {
      first.use(block);
      return;
    }
    ++l1_misses;
    if (second.holds(block)) {
      second.use(block);
    } else {
      ++walks;
      second.insert(block);
    }
    first.insert(block);
  }
  void fault(VirtAddr at, std::uint64_t size) {
    const auto block = NaiveTlb::block_of(at, size);
    if (!first.holds(block) && !second.holds(block)) ++vain_walks;
  }
  void flush(Range range) {
    first.flush(range);
    second.flush(range);
  }
};

class Play {
 public:
  Play(TlbMachine& m, Task& t, std::uint64_t seed)
      : m_(m), t_(t), random_{seed}, expected_{NaiveTlb(4, 4), NaiveTlb(16, 4)} {
    m.mmap(t, kPages, kSmall);
    sys_madvise(t, m.process(), kSmall, kPages * m.page(), Madvise::kNohugepage);
    m.mmap(t, kPages, kHuge);
  }

  void step() {
    const std::uint64_t what = random_.below(100);
    if (what < 90)
      access();
    else if (what < 96)
      discard();
    else
      protect();
    const TlbStats& s = m_.stats();
    ASSERT_EQ(s.l1_misses, expected_.l1_misses);
    ASSERT_EQ(s.walks, expected_.walks);
    ASSERT_EQ(s.vain_walks, expected_.vain_walks);
  }

 private:
  VirtAddr somewhere() {
    // Near places are likelier, so that there are hits.
    const std::uint64_t page =
        random_.below(3) == 0 ? random_.below(kPages) : random_.below(6);
    return (random_.below(2) == 0 ? kSmall : kHuge) + page * m_.page();
  }
  std::uint64_t size_at(VirtAddr at) { return at < kHuge ? m_.page() : m_.huge(); }

  std::uint64_t mapped_size(VirtAddr at) {
    return m_.pages().maps_huge(at) ? m_.huge() : m_.page();
  }

  void access() {
    const VirtAddr at = somewhere();
    const bool write = random_.below(2) == 0;
    const PageView before = m_.pages().look(at);
    const bool zero = before.kind == PageView::kZero || before.kind == PageView::kHugeZero;
    const bool missing = before.kind == PageView::kNone;
    if (missing || (write && !before.writable)) expected_.fault(at, mapped_size(at));
    // The zero page makes way for another one, or becomes a table of pages.
    if (write && zero) expected_.flush(block(at, mapped_size(at)));
    ASSERT_EQ(write ? m_.write(t_, at) : m_.read(t_, at), Signal::kNone);
    expected_.access(at, mapped_size(at));
  }
  static Range block(VirtAddr at, std::uint64_t size) {
    const VirtAddr start{at.v / size * size};
    return {start, start + size};
  }
  // Whole huge pages of the one area, any pages of the other; few enough for a flush by
  // page.
  void discard() {
    const VirtAddr at = somewhere();
    Range range = block(at, size_at(at));
    if (at < kHuge) range.end = range.start + (1 + random_.below(4)) * m_.page();
    if (range.end > kSmall + kPages * m_.page() && at < kHuge) return;
    sys_madvise(t_, m_.process(), range.start, range.bytes(), Madvise::kDontneed);
    expected_.flush(range);
  }
  // Takes the right to write and gives it back: the first flushes what is there.
  void protect() {
    const VirtAddr at = somewhere();
    const Range range = block(at, size_at(at));
    bool took = false;
    for (VirtAddr p = range.start; p < range.end; p = p + m_.page())
      took |= m_.pages().look(p).writable;
    sys_mprotect(t_, m_.process(), range.start, range.bytes(), kProtRead);
    if (took) expected_.flush(range);
    sys_mprotect(t_, m_.process(), range.start, range.bytes(), kProtRead | kProtWrite);
  }

  TlbMachine& m_;
  Task& t_;
  Random random_;
  Expected expected_;
};

TEST(TlbRandom, CountsAsNaiveArraysDo) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    TlbMachine m(tlb_profile(1), ThpEnabled::kAlways);
    m.run([&](Task& t) {
      Play play(m, t, seed * 0x9e37'79b9);
      for (int i = 0; i < 3000 && !::testing::Test::HasFatalFailure(); ++i) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(i));
        play.step();
      }
    });
    EXPECT_GT(m.stats().l1_misses, m.stats().walks);
    EXPECT_GT(m.stats().flushes, 0U);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
