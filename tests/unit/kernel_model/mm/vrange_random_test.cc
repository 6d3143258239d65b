// SPDX-License-Identifier: Apache-2.0
//
// Random marking, un-marking, touching and purging against a reference that keeps for each
// page by itself which range it belongs to, whether it is there, and what it holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sim/rng.h"
#include "tests/unit/kernel_model/mm/vrange_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;
using enum VrangeVersion;

constexpr std::uint64_t kPages = 40;

class Reference {
 public:
  explicit Reference(bool v7) : v7_(v7) {}

  void mark(std::uint64_t from, std::uint64_t to) {
    const int first = range[from];
    const bool one =
        first != 0 && std::all_of(range.begin() + at(from), range.begin() + at(to),
                                  [&](int r) { return r == first; });
    if (one && !v7_) return;
    if (one && from > 0 && range[from - 1] == first && to < kPages && range[to] == first)
      return;
    const int made = ++ranges_made_;
    purged[made] = false;
    for (std::uint64_t i = from; i < to; ++i) {
      const int old = range[i];
      if (old != 0 && old != made) {
        purged[made] = purged[made] || purged[old];
        std::replace(range.begin(), range.end(), old, made);
      }
      range[i] = made;
    }
  }
  bool unmark(std::uint64_t from, std::uint64_t to) {
    bool lost = false;
    for (std::uint64_t i = from; i < to; ++i)
      lost = lost || (range[i] != 0 && purged[range[i]]);
    // What lies behind the cut is a range of its own.
    if (from > 0 && to < kPages && range[from] != 0 && range[from] == range[to] &&
        range[from - 1] == range[to]) {
      const int old = range[to], made = ++ranges_made_;
      purged[made] = purged[old];
      std::replace(range.begin() + at(to), range.end(), old, made);
    }
    std::fill(range.begin() + at(from), range.begin() + at(to), 0);
    return lost;
  }
  void purge(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) {
      if (range[i] == 0 || page[i] != 'p') continue;
      page[i] = 'x';
      purged[range[i]] = true;
    }
  }
  // The first access of [from, to) that gets SIGBUS, or `to`.
  std::uint64_t write(std::uint64_t from, std::uint64_t to, std::uint8_t value) {
    for (std::uint64_t i = from; i < to; ++i) {
      if (page[i] == 'x' && range[i] != 0 && purged[range[i]]) return i;
      page[i] = 'p';
      byte[i] = value;
    }
    return to;
  }
  [[nodiscard]] std::string ranges() const {
    std::string text;
    for (std::uint64_t i = 0; i < kPages;) {
      std::uint64_t end = i + 1;
      while (end < kPages && range[end] == range[i]) ++end;
      if (range[i] != 0)
        text += (text.empty() ? "" : " ") + std::to_string(i) + "-" + std::to_string(end) +
                (purged.at(range[i]) ? "!" : "");
      i = end;
    }
    return text;
  }

  std::vector<int> range = std::vector<int>(kPages, 0);  // 0: none
  std::map<int, bool> purged{{0, false}};
  std::string page = std::string(kPages, '.');
  std::vector<std::uint8_t> byte = std::vector<std::uint8_t>(kPages, 0);

 private:
  static std::ptrdiff_t at(std::uint64_t i) { return static_cast<std::ptrdiff_t>(i); }
  bool v7_;
  int ranges_made_ = 0;
};

void write(VrangeMachine& m, Task& task, Reference& ref, std::uint64_t from,
           std::uint64_t to, std::uint8_t value) {
  const std::uint64_t stops = ref.write(from, to, value);
  for (std::uint64_t i = from; i < to; ++i) {
    const Signal signal = m.touch(task, m.page(i), k4K);
    ASSERT_EQ(signal, i == stops ? Signal::kBus : Signal::kNone);
    if (i == stops) return;
    m.kernel->contents()->wrote(m.process->mm().pages().look(m.page(i)).pfn, value);
  }
}

void play(VrangeVersion version, std::uint64_t seed) {
  VrangeMachine m(version);
  m.run([&](Task& task) {
    m.map_area(task, kPages);
    Reference ref(version == k7);
    Rng rng(seed, "vrange");
    for (unsigned step = 0; step < 400; ++step) {
      const std::uint64_t from = rng.below(kPages);
      const std::uint64_t to =
          from + 1 + rng.below(std::min<std::uint64_t>(12, kPages - from));
      SCOPED_TRACE(::testing::Message() << "step " << step << ": " << from << "-" << to);
      int lost = 0;
      switch (rng.below(5)) {
        case 0:
          ASSERT_TRUE(m.vrange(task, from, to, kVrangeVolatile).ok());
          ref.mark(from, to);
          break;
        case 1: {
          const auto r = m.vrange(task, from, to, kVrangeNovolatile, &lost);
          ASSERT_TRUE(r.ok());
          const bool said = version == k7 ? r.value() == 1 : lost == 1;
          ASSERT_EQ(said, ref.unmark(from, to));
          break;
        }
        case 2:
          m.discard(task, from, to);
          ref.purge(from, to);
          break;
        default:
          write(m, task, ref, from, to, static_cast<std::uint8_t>(1 + rng.below(255)));
          break;
      }
      ASSERT_EQ(m.ranges(), ref.ranges());
      ASSERT_EQ(m.draw(kPages), ref.page);
    }
    for (std::uint64_t i = 0; i < kPages; ++i)
      if (ref.page[i] == 'p') {
        EXPECT_EQ(m.kernel->contents()->byte(m.process->mm().pages().look(m.page(i)).pfn),
                  ref.byte[i]);
      }
  });
}

TEST(VrangeRandom, AgreesWithOnePageAtATime) {
  for (const VrangeVersion version : {k7, k8, k9, k10})
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(seed);
      play(version, seed);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace faultline::kernel
