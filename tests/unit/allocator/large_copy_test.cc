// SPDX-License-Identifier: Apache-2.0
//
// Copies that are remembered instead of made, and faults taken together, are seen by
// nobody: a random program reads what it would read from plain memory, and a range that is
// touched as a whole takes the time, the faults and the lock operations of its pages one by
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "allocator/platform/model.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr std::uint64_t kPage = 4096, kPages = 96;

// Memory of the modelled process beside plain memory.
class Twin {
 public:
  Twin(Model& p, std::uint32_t seed)
      : p_(p), at_(map(p)), plain_(kPages * kPage), draw_(seed) {}

  void step() {
    switch (pick(10)) {
      case 0:
      case 1:
      case 2: {
        const std::uint64_t n = 1 + pick(40 * kPage), room = plain_.size() - n;
        std::uint64_t to = pick(room), from = pick(room);
        if (pick(2) == 0)
          to = std::min(to / kPage * kPage + from % kPage, room);  // mostly alike
        if (to < from + n && from < to + n) return;
        p_.copy(at_ + to, at_ + from, n);
        std::copy_n(plain_.begin() + static_cast<long>(from), n,
                    plain_.begin() + static_cast<long>(to));
        break;
      }
      case 3: {
        const std::uint64_t page = pick(kPages), n = 1 + pick(kPages - page);
        p_.madvise(at_ + page * kPage, n * kPage, sys::kMadvDontneed);
        std::fill_n(plain_.begin() + static_cast<long>(page * kPage), n * kPage, 0);
        break;
      }
      case 4: {
        const std::uint64_t to = pick(plain_.size()), n = pick(plain_.size() - to);
        const auto byte = static_cast<std::uint8_t>(pick(3));
        p_.set(at_ + to, byte, n);
        std::fill_n(plain_.begin() + static_cast<long>(to), n, byte);
        break;
      }
      default:
        for (int i = 0; i < 8; ++i) store();
    }
  }
  [[nodiscard]] std::uint64_t wrong_words() {
    std::uint64_t wrong = 0;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t word = pick(plain_.size() / 8) * 8;
      std::uint64_t expected = 0;
      std::memcpy(&expected, &plain_[word], 8);
      wrong += p_.load<std::uint64_t>(at_ + word) != expected;
    }
    return wrong;
  }

 private:
  static Addr map(Model& p) {
    return p
        .mmap(0, kPages * kPage, sys::kProtRead | sys::kProtWrite,
              sys::kMapPrivate | sys::kMapAnonymous)
        .value;
  }
  std::uint64_t pick(std::uint64_t n) { return draw_() % n; }
  void store() {
    const std::uint64_t word = pick(plain_.size() / 8) * 8, value = draw_();
    p_.store(at_ + word, value);
    std::memcpy(&plain_[word], &value, 8);
  }
  Model& p_;
  Addr at_;
  std::vector<std::uint8_t> plain_;
  std::mt19937 draw_;
};

TEST(LargeCopy, ReadsAsPlainMemoryDoes) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    Machine machine;
    machine.run([&](Model& p) {
      Twin twin(p, seed);
      for (int i = 0; i < 1500; ++i) {
        twin.step();
        ASSERT_EQ(twin.wrong_words(), 0u) << "step " << i << " seed " << seed;
      }
    });
  }
}

TEST(LargeCopy, CostsTheHostNoBytesUntilTheyAreLookedAt) {
  Machine machine;
  machine.run([&](Model& p) {
    constexpr std::uint64_t kBytes = 2 << 20;
    const Addr a = p.mmap(0, 2 * kBytes, sys::kProtRead | sys::kProtWrite,
                          sys::kMapPrivate | sys::kMapAnonymous)
                       .value;
    for (std::uint64_t i = 0; i < kBytes; i += 8) p.store<std::uint64_t>(a + i, i);
    const std::uint64_t before = machine.model.host_pieces();
    p.copy(a + kBytes, a, kBytes);
    EXPECT_EQ(machine.model.host_pieces(), before);
    EXPECT_EQ(p.load<std::uint64_t>(a + kBytes + 77'776), 77'776u);
    EXPECT_EQ(machine.model.host_pieces(), before + 1);
    p.store<std::uint64_t>(a + 8 * 4096, 1);  // the copy keeps what was copied
    EXPECT_EQ(p.load<std::uint64_t>(a + kBytes + 8 * 4096), 8u * 4096);
  });
}

struct Seen {
  Time end;
  std::uint64_t minflt, pgfault, rss, reads, ptl;
  Duration read_hold, ptl_hold, user, sys;
  bool operator==(const Seen&) const = default;
};

Seen touched(bool whole) {
  Machine machine({.kernel = "4.15"});
  Seen seen{};
  machine.run([&](Model& p) {
    constexpr std::uint64_t kMany = 700;  // more than one page table
    const Addr a = p.mmap(0, kMany * kPage, sys::kProtRead | sys::kProtWrite,
                          sys::kMapPrivate | sys::kMapAnonymous)
                       .value;
    if (whole)
      p.touch(a, kMany * kPage, Touch::kWrite);
    else
      for (std::uint64_t i = 0; i < kMany; ++i) p.touch(a + i * kPage, 1, Touch::kWrite);
    LockRegistry& locks = machine.engine.locks();
    const LockStats& mmap = locks.of("mmap_lock");
    seen = {p.task().now(),
            machine.process.minflt,
            machine.kernel.vmstat().pgfault,
            machine.process.mm().rss(),
            mmap.read.acquired,
            0,
            mmap.read.hold,
            {},
            p.task().usage().user,
            p.task().usage().sys};
    for (const LockStats& l : locks.all()) {
      seen.ptl += l.write.acquired;
      seen.ptl_hold += l.write.hold;
    }
  });
  return seen;
}

TEST(FaultRun, IsTheSameAsOneFaultAfterTheOther) {
  const Seen one_by_one = touched(false), together = touched(true);
  EXPECT_GT(together.minflt, 700u - 1);
  EXPECT_GT(together.reads, 700u - 1);
  EXPECT_GT(together.ptl_hold, Duration{});
  EXPECT_TRUE(one_by_one == together);
  EXPECT_EQ(one_by_one.end, together.end);
  EXPECT_EQ(one_by_one.reads, together.reads);
  EXPECT_EQ(one_by_one.ptl, together.ptl);
  EXPECT_EQ(one_by_one.sys, together.sys);
}

}  // namespace
}  // namespace faultline::alloc::modelled
