// SPDX-License-Identifier: Apache-2.0
//
// What memcpy, memset and clear_page take when the last-level cache holds their pages and
// when it doesn't: exact times and traffic.
#include "kernel_model/mm/data_caches.h"

#include <gtest/gtest.h>

#include "kernel_model/mm/clear_page.h"
#include "tests/support/toy_machine.h"

namespace faultline::kernel::testing {
namespace {

using namespace time_literals;

constexpr std::uint64_t kGB = 1'000'000'000, kPage = 4096;

// 32 pages in 4 sets.  A page held is copied in 2.048 us and cleared in 1.024 us; one that
// is filled takes 8.192 us, and one that is written back 4.096 us.
arch::Profile profile_with_llc(unsigned cpus = 1) {
  arch::Profile p = toy_profile(cpus);
  p.llc = {.bytes = 32 * kPage, .ways = 8, .slices = 1};
  p.costs.cached_copy_rate = 2 * kGB;
  p.costs.clear_rate = 4 * kGB;
  p.costs.memory_rate = kGB / 2;
  p.costs.node_bandwidth = kGB;
  return p;
}
KernelConfig without_thp() {
  KernelConfig config = toy_config();
  config.thp_enabled = ThpEnabled::kNever;
  return config;
}

class DataCachesTest : public ::testing::Test {
 protected:
  void use(const arch::Profile& profile) {
    m_ = std::make_unique<ToyMachine>(profile, without_thp());
  }
  DataCaches& caches() { return *m_->kernel.data_caches(); }
  // A mapping whose pages are there, but in no cache.
  VirtAddr cold(Task& t, std::uint64_t pages) {
    const VirtAddr at = m_->mmap(t, pages);
    user_touch(t, m_->process(), at, pages * kPage, kPage, Access::kWrite);
    for (std::uint64_t i = 0; i < pages; ++i)
      const_cast<LastLevelCache&>(caches().cache_of(0))
          .drop(m_->pages().tree().leaf_at(at + i * kPage).pfn().v);
    return at;
  }
  template <typename F>
  static Duration time_of(Task& t, F f) {
    const Time start = t.now();
    f();
    return t.now() - start;
  }
  std::unique_ptr<ToyMachine> m_ =
      std::make_unique<ToyMachine>(profile_with_llc(), without_thp());
};

TEST_F(DataCachesTest, OffUnlessTheMachineHasOne) {
  use(toy_profile());
  EXPECT_EQ(m_->kernel.data_caches(), nullptr);
}

TEST_F(DataCachesTest, ACopyIsReadOnceAndHeldFromThenOn) {
  m_->run([&](Task& t) {
    const VirtAddr from = cold(t, 8), to = cold(t, 8);
    const auto before = caches().stats();
    const auto copy = [&] { caches().copy(t, m_->process(), to, from, 8 * kPage); };
    EXPECT_EQ(time_of(t, copy), 8192_ns * 16);
    EXPECT_EQ(caches().stats().misses - before.misses, 16u);
    EXPECT_EQ(caches().stats().writebacks, 0u);
    EXPECT_EQ(caches().stats().dram_bytes - before.dram_bytes, 16 * kPage);
    EXPECT_EQ(time_of(t, copy), 2048_ns * 8);
    EXPECT_EQ(caches().stats().hits - before.hits, 16u);
  });
}

TEST_F(DataCachesTest, APartOfAPageTakesAPartOfTheTimeButFillsAllOfIt) {
  m_->run([&](Task& t) {
    const VirtAddr at = cold(t, 2);
    const auto set = [&](std::uint64_t from, std::uint64_t n) {
      return time_of(t, [&] { caches().set(t, m_->process(), at + from, n, n); });
    };
    EXPECT_EQ(set(1024, 1024), 8192_ns);
    EXPECT_EQ(set(1024, 2048), 512_ns);
    EXPECT_EQ(set(3072, 2048), 256_ns + 8192_ns);  // the second page is new
  });
}

TEST_F(DataCachesTest, WhatAFaultHasClearedIsHeldAndItsClearReadNothing) {
  m_->run([&](Task& t) {
    const VirtAddr at = m_->mmap(t, 8);
    const auto before = caches().stats();
    user_touch(t, m_->process(), at, 8 * kPage, kPage, Access::kWrite);
    EXPECT_EQ(caches().stats().misses - before.misses, 8u);
    EXPECT_EQ(caches().stats().dram_bytes, before.dram_bytes);
    EXPECT_EQ(time_of(t, [&] { caches().set(t, m_->process(), at, 8 * kPage, 8 * kPage); }),
              1024_ns * 8);
  });
}

TEST_F(DataCachesTest, ClearPageTakesOverWhatIsNotThere) {
  m_->run([&](Task& t) {
    const VirtAddr at = cold(t, 1);
    const Pfn frame = m_->pages().tree().leaf_at(at).pfn();
    const auto before = caches().stats();
    const auto clear = [&] { caches().clear_frames(t, frame, kPage); };
    EXPECT_EQ(time_of(t, clear), 8192_ns);
    EXPECT_TRUE(caches().cache_of(0).is_dirty(frame.v));
    EXPECT_EQ(time_of(t, clear), 1024_ns);
    EXPECT_EQ(caches().stats().dram_bytes, before.dram_bytes);
  });
}

// 64 pages through a cache of 32: what was dirtied first is written back when it goes.
TEST_F(DataCachesTest, DirtyPagesAreWrittenBackWhenTheyGo) {
  m_->run([&](Task& t) {
    const VirtAddr at = cold(t, 64);
    const auto before = caches().stats();
    const auto set = [&](std::uint64_t page, std::uint64_t pages) {
      caches().set(t, m_->process(), at + page * kPage, pages * kPage, pages * kPage);
    };
    EXPECT_EQ(time_of(t, [&] { set(0, 32); }), 8192_ns * 32);
    EXPECT_EQ(time_of(t, [&] { set(32, 32); }), 8192_ns * 32 + 4096_ns * 32);
    EXPECT_EQ(caches().stats().writebacks - before.writebacks, 32u);
    EXPECT_EQ(caches().stats().dram_bytes - before.dram_bytes, 96 * kPage);
    const auto read = [&] { caches().copy(t, m_->process(), at + 40 * kPage, at, 1); };
    EXPECT_EQ(time_of(t, read),
              8192_ns + 4096_ns + 1_ns / 4);  // and back for another dirty one
  });
}

TEST_F(DataCachesTest, LargeBlocksAreWrittenPastIt) {
  arch::Profile p = profile_with_llc();
  p.llc.non_temporal_threshold = 16 * kPage;
  use(p);
  m_->run([&](Task& t) {
    const VirtAddr at = m_->mmap(t, 16);
    user_touch(t, m_->process(), at, 16 * kPage, kPage, Access::kWrite);
    const std::uint64_t held = caches().cache_of(0).frames_held();
    const auto before = caches().stats();
    const auto set = [&](std::uint64_t whole) {
      return time_of(t, [&] { caches().set(t, m_->process(), at, 4 * kPage, whole); });
    };
    EXPECT_EQ(set(16 * kPage), 8192_ns * 4);  // no fill, no write-back
    EXPECT_EQ(caches().stats().dram_bytes - before.dram_bytes, 4 * kPage);
    EXPECT_EQ(caches().cache_of(0).frames_held(), held - 4);
    EXPECT_EQ(set(16 * kPage - 1), 8192_ns * 4);  // not there any more
    EXPECT_EQ(set(16 * kPage - 1), 1024_ns * 4);
  });
}

// Two who copy what is held don't meet at each 64 KiB of it.
TEST_F(DataCachesTest, WhatIsHeldIsCopiedWithoutAStop) {
  constexpr std::uint64_t kPages = 128;
  arch::Profile p = profile_with_llc(2);
  p.llc.bytes = 1024 * kPage;
  use(p);
  VirtAddr at;
  const auto copy = [&](Task& t, std::uint64_t first) {
    const VirtAddr from = at + first * kPage;
    caches().copy(t, m_->process(), from + kPages * kPage, from, kPages * kPage);
  };
  m_->run([&](Task& t) {
    at = cold(t, 4 * kPages);
    copy(t, 0);
    copy(t, 2 * kPages);
  });
  const std::uint64_t before = m_->engine.events();
  const auto misses = caches().stats().misses;
  for (const std::uint64_t first : {std::uint64_t{0}, 2 * kPages})
    m_->engine.spawn(
        "t", [&, first](Task& t) { copy(t, first); }, m_->engine.now());
  m_->run_all();
  EXPECT_EQ(caches().stats().misses, misses);
  EXPECT_LE(m_->engine.events() - before, 8u);
}

// Each may have 0.5 GB/s, all together 1 GB/s.
TEST_F(DataCachesTest, ThoseWhoMissShareTheMemory) {
  const auto time_of_each = [&](int tasks) {
    use(profile_with_llc(8));
    Time last;
    VirtAddr at;
    m_->run([&](Task& t) { at = cold(t, 64); });
    const Time start = m_->engine.now();
    for (int i = 0; i < tasks; ++i)
      m_->engine.spawn(
          "t",
          [&, i](Task& t) {
            caches().set(t, m_->process(), at + static_cast<unsigned>(i) * 4 * kPage,
                         4 * kPage, 4 * kPage);
            last = std::max(last, t.now());
          },
          start);
    m_->run_all();
    return last - start;
  };
  EXPECT_EQ(time_of_each(1), 8192_ns * 4);
  EXPECT_EQ(time_of_each(2), 8192_ns * 4);
  EXPECT_EQ(time_of_each(4), 8192_ns * 8);
  EXPECT_EQ(time_of_each(8), 8192_ns * 16);
}

// A core's threads have one way to the cache, and its fill buffers.
TEST_F(DataCachesTest, TwoThreadsOfACoreShareItsPort) {
  const auto time_of_both = [&](unsigned smt, bool held) {
    arch::Profile p = profile_with_llc(2);
    p.smt = smt;
    use(p);
    Time last;
    VirtAddr at;
    m_->run([&](Task& t) {
      at = cold(t, 8);
      if (held) caches().set(t, m_->process(), at, 8 * kPage, 8 * kPage);
    });
    const Time start = m_->engine.now();
    for (unsigned i = 0; i < 2; ++i)
      m_->engine.spawn(
          "t",
          [&, i](Task& t) {
            caches().copy(t, m_->process(), at + (i * 4 + 2) * kPage, at + i * 4 * kPage,
                          2 * kPage);
            last = std::max(last, t.now());
          },
          start);
    m_->run_all();
    return last - start;
  };
  EXPECT_EQ(time_of_both(1, true), 2048_ns * 2);
  EXPECT_EQ(time_of_both(2, true), 2048_ns * 4);
  EXPECT_EQ(time_of_both(1, false), 8192_ns * 4);
  EXPECT_EQ(time_of_both(2, false), 8192_ns * 8);
}

TEST_F(DataCachesTest, OnlyOneNodesCacheHoldsWhatIsWritten) {
  arch::Profile p = profile_with_llc(2);
  p.nodes.push_back(p.nodes[0]);
  p.node_of_cpu = {0, 1};
  p.node_distance = {{10, 20}, {20, 10}};
  use(p);
  VirtAddr at;
  const auto frame = [&] { return m_->pages().tree().leaf_at(at).pfn().v; };
  const auto on_node = [&](int node, const std::function<void(Task&)>& body) {
    for (int i = 0; i < 2; ++i)  // one goes to each node
      m_->add(
          [&, node](Task& t) {
            if (t.node() == node) body(t);
            t.work(1_ms);
          },
          m_->engine.now() - Time());
    m_->run_all();
  };
  m_->run([&](Task& t) { at = cold(t, 1); });
  const auto set = [&](Task& t) { caches().set(t, m_->process(), at, kPage, kPage); };
  on_node(0, set);
  EXPECT_TRUE(caches().cache_of(0).is_dirty(frame()));
  const auto before = caches().stats();
  on_node(1, [&](Task& t) { caches().copy(t, m_->process(), at + 1, at, 1); });
  EXPECT_EQ(caches().stats().writebacks - before.writebacks, 1u);
  EXPECT_FALSE(caches().cache_of(0).holds(frame()));
  EXPECT_TRUE(caches().cache_of(1).is_dirty(frame()));
  on_node(0, [&](Task& t) { caches().copy_frames(t, {0}, {frame()}, kPage); });
  EXPECT_TRUE(caches().cache_of(0).holds(frame())) << "both may read";
  EXPECT_TRUE(caches().cache_of(1).holds(frame()));
  EXPECT_FALSE(caches().cache_of(1).is_dirty(frame()));
}

}  // namespace
}  // namespace faultline::kernel::testing
