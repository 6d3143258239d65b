// SPDX-License-Identifier: Apache-2.0
//
// The VMA set against a plain map of ranges.
#include "kernel_model/mm/vma_set.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace faultline::kernel {
namespace {

constexpr std::uint64_t kGuard = 4;

struct Reference {
  std::map<std::uint64_t, std::uint64_t> ranges;  // start -> end
  std::map<std::uint64_t, bool> stack;

  [[nodiscard]] bool free(std::uint64_t start, std::uint64_t end) const {
    for (const auto& [s, e] : ranges)
      if (s < end && start < e) return false;
    return true;
  }
  // Free, and not in the guard gap of a stack, which ends at the range below the stack.
  [[nodiscard]] bool open(std::uint64_t start, std::uint64_t end) const {
    std::uint64_t below = 0;
    for (const auto& [s, e] : ranges) {
      const std::uint64_t low = stack.at(s) ? std::max(below, s - std::min(s, kGuard)) : s;
      if (low < end && start < e) return false;
      below = e;
    }
    return true;
  }
  [[nodiscard]] std::optional<std::uint64_t> highest(std::uint64_t n, std::uint64_t lo,
                                                     std::uint64_t hi) const {
    for (std::uint64_t at = hi; at >= lo + n; --at)
      if (open(at - n, at)) return at - n;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> lowest(std::uint64_t n, std::uint64_t lo,
                                                    std::uint64_t hi) const {
    for (std::uint64_t at = lo; at + n <= hi; ++at)
      if (open(at, at + n)) return at;
    return std::nullopt;
  }
};

class Both {
 public:
  explicit Both(std::uint32_t seed) : random_(seed) {}

  void step() {
    switch (pick(4)) {
      case 0:
      case 1:
        insert();
        break;
      case 2:
        remove();
        break;
      default:
        resize();
        break;
    }
    set_.check();
    compare();
  }

 private:
  static constexpr std::uint64_t kTop = 240;
  std::uint64_t pick(std::uint64_t n) { return random_() % n; }

  void insert() {
    const std::uint64_t start = pick(kTop - 12);
    const std::uint64_t end = start + 1 + pick(12);
    if (!reference_.free(start, end)) return;
    Vma& vma = set_.make();
    vma.start = {start};
    vma.end = {end};
    vma.vm_flags = pick(6) == 0 ? VM_GROWSDOWN : VM_NONE;
    set_.insert(vma);
    reference_.ranges[start] = end;
    reference_.stack[start] = vma.vm_flags != 0;
  }
  void remove() {
    Vma* const vma = set_.find({pick(kTop)});
    if (vma == nullptr) return;
    reference_.ranges.erase(vma->start.v);
    set_.remove(*vma);
    set_.free(*vma);
  }
  void resize() {
    Vma* const vma = set_.find({pick(kTop)});
    if (vma == nullptr) return;
    const std::uint64_t low = vma->prev() != nullptr ? vma->prev()->end.v : 0;
    const std::uint64_t high = vma->next() != nullptr ? vma->next()->start.v : kTop;
    const std::uint64_t start = low + pick(vma->end.v - low);
    const std::uint64_t end = start + 1 + pick(high - start);
    const bool stack = reference_.stack[vma->start.v];
    reference_.ranges.erase(vma->start.v);
    set_.set_range(*vma, {{start}, {end}});
    reference_.ranges[start] = end;
    reference_.stack[start] = stack;
  }

  void compare() {
    ASSERT_EQ(set_.size(), reference_.ranges.size());
    auto expected = reference_.ranges.begin();
    for (const Vma& vma : set_) {
      ASSERT_EQ(vma.start.v, expected->first);
      ASSERT_EQ(vma.end.v, expected->second);
      ++expected;
    }
    const std::uint64_t n = 1 + pick(20);
    const std::uint64_t lo = pick(60);
    const std::uint64_t hi = lo + pick(kTop + 10 - lo);
    const auto highest = set_.highest_gap(n, {{lo}, {hi}});
    const auto lowest = set_.lowest_gap(n, {{lo}, {hi}});
    const auto want_high = reference_.highest(n, lo, hi);
    const auto want_low = reference_.lowest(n, lo, hi);
    ASSERT_EQ(highest.has_value(), want_high.has_value());
    ASSERT_EQ(lowest.has_value(), want_low.has_value());
    if (want_high) {
      ASSERT_EQ(highest->v, *want_high);
    }
    if (want_low) {
      ASSERT_EQ(lowest->v, *want_low);
    }
    const std::uint64_t at = pick(kTop);
    const Vma* const below = set_.last_below({at});
    const auto want = reference_.ranges.lower_bound(at);
    ASSERT_EQ(below == nullptr, want == reference_.ranges.begin());
    if (below != nullptr) {
      ASSERT_EQ(below->start.v, std::prev(want)->first);
    }
  }

  std::mt19937 random_;
  VmaSet set_{kGuard};
  Reference reference_;
};

TEST(VmaSet, AnswersAsAPlainMapOfRangesDoes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Both both(seed);
    for (int i = 0; i < 400; ++i) {
      both.step();
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << i;
    }
  }
}

TEST(VmaSet, KeepsVmasInPlaceWhileOthersComeAndGo) {
  VmaSet set(0);
  Vma& first = set.make();
  first.start = {10};
  first.end = {20};
  set.insert(first);
  for (std::uint64_t i = 1; i < 1000; ++i) {
    Vma& vma = set.make();
    vma.start = {100 * i};
    vma.end = {100 * i + 1};
    set.insert(vma);
  }
  EXPECT_EQ(set.at({15}), &first);
  EXPECT_EQ(set.at({20}), nullptr);
  EXPECT_EQ(set.find({20})->start.v, 100U);
  EXPECT_EQ(set.last()->start.v, 99900U);
  set.check();
}

}  // namespace
}  // namespace faultline::kernel
