// SPDX-License-Identifier: Apache-2.0
//
// mallocstress on a platform that only counts: its sizes, order and sleeps are those of the
// program.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "scenarios/workloads/mallocstress.h"
#include "scenarios/workloads/touch.h"

namespace faultline::workloads {
namespace {

// User memory as a map; threads run one after the other.
class CountingPlatform {
 public:
  struct Lock {
    explicit Lock(const char*) {}
  };
  struct Frame {
    Frame(CountingPlatform&, const alloc::Place&) {}
    ~Frame() {}
  };
  const alloc::PlatformFacts& facts() { return facts_; }
  alloc::SysValue mmap(alloc::Addr, std::uint64_t n, unsigned, unsigned) {
    mapped = n;
    return {0x10000, 0};
  }
  int munmap(alloc::Addr, std::uint64_t) { return 0; }
  int mprotect(alloc::Addr, std::uint64_t, unsigned) { return 0; }
  int madvise(alloc::Addr, std::uint64_t, int) { return 0; }
  alloc::SysValue vrange(alloc::Addr, std::uint64_t, int, alloc::Addr) {
    return {0, alloc::sys::kENOSYS};
  }
  bool set_bus_handler(const alloc::BusHandler<CountingPlatform>&) { return false; }
  alloc::SysValue mremap(alloc::Addr, std::uint64_t, std::uint64_t, unsigned) { return {}; }
  alloc::SysValue sbrk(std::int64_t) { return {}; }
  std::uint64_t monotonic_ns() { return 0; }
  void usleep(std::uint64_t) { ++sleeps; }
  std::uint64_t random_key() { return 1; }
  template <typename T>
  T load(alloc::Addr a) {
    return words[a];
  }
  template <typename T>
  void store(alloc::Addr a, T v) {
    words[a] = v;
  }
  void touch(alloc::Addr a, std::uint64_t, alloc::Touch kind) {
    touched.push_back(a);
    last_kind = kind;
  }
  void set(alloc::Addr, std::uint8_t, std::uint64_t) {}
  void copy(alloc::Addr, alloc::Addr, std::uint64_t) {}
  void cycles(std::uint64_t) {}
  std::uint64_t atomic_load(alloc::Addr a) { return words[a]; }
  void atomic_store(alloc::Addr a, std::uint64_t v) { words[a] = v; }
  std::uint64_t atomic_add(alloc::Addr, std::uint64_t) { return 0; }
  std::uint64_t atomic_exchange(alloc::Addr, std::uint64_t) { return 0; }
  bool compare_exchange(alloc::Addr, std::uint64_t, std::uint64_t) { return true; }
  void lock(Lock&) {}
  bool try_lock(Lock&) { return true; }
  void unlock(Lock&) {}
  Lock& lock_at(alloc::Addr, const char*) { return lock_; }
  void reset_lock(Lock&) {}
  alloc::ThreadWords& thread_words() { return thread_words_; }
  bool multi_threaded() { return true; }
  alloc::Addr static_storage(std::uint64_t) { return 0; }
  void set_thread_hooks(const alloc::ThreadHooks<CountingPlatform>&) {}
  void run_threads(unsigned count, void (*body)(CountingPlatform&, unsigned, void*),
                   void* arg) {
    for (unsigned i = 0; i < count; ++i) body(*this, i, arg);
  }
  alloc::SysValue run_child(int (*child)(CountingPlatform&, void*),
                            void (*parent)(CountingPlatform&, void*), void* arg) {
    const int status = child(*this, arg);
    parent(*this, arg);
    return {static_cast<alloc::Addr>(status), 0};
  }

  std::uint64_t sleeps = 0, mapped = 0;
  std::map<alloc::Addr, std::uint64_t> words;
  std::vector<alloc::Addr> touched;
  alloc::Touch last_kind = alloc::Touch::kRead;

 private:
  alloc::PlatformFacts facts_;
  Lock lock_{"none"};
  alloc::ThreadWords thread_words_;
};

// Refuses what is larger than `limit`; may spoil a block when it is freed.
struct CountingAllocator {
  std::uint64_t limit = UINT64_MAX;
  bool spoil = false;
  alloc::Addr next = 16;
  std::vector<std::uint64_t> sizes;
  std::vector<alloc::Addr> freed;
  alloc::Addr malloc(CountingPlatform&, std::uint64_t n) {
    sizes.push_back(n);
    return n > limit ? 0 : (next += 16);
  }
  void free(CountingPlatform& p, alloc::Addr a) {
    freed.push_back(a);
    if (spoil) p.words[a + 16] = 99;
  }
};

static_assert(alloc::ThreadedPlatform<CountingPlatform>);

Outcome stress(CountingPlatform& p, CountingAllocator& a, const Params& params) {
  Progress progress;
  Outcome out = mallocstress(p, a, params, progress);
  EXPECT_EQ(progress.done, progress.total);
  return out;
}

Params params_of(std::string_view workload,
                 std::initializer_list<std::pair<const char*, std::int64_t>> set) {
  Params params(*find(workload));
  for (const auto& [name, value] : set) params.set(name, value);
  return params;
}

TEST(Mallocstress, SizesOfTheFourSchemes) {
  const auto first = [](unsigned scheme, int n) {
    std::vector<std::uint64_t> sizes;
    SizeSeries s(scheme);
    for (int i = 0; i < n; ++i, s.advance()) sizes.push_back(s.size());
    return sizes;
  };
  using V = std::vector<std::uint64_t>;
  EXPECT_EQ(first(0, 8), (V{8, 13, 21, 34, 55, 89, 144, 233}));
  EXPECT_EQ(first(0, 50).back(), 139'583'862'445U);
  EXPECT_EQ(first(1, 5), (V{8, 16, 32, 64, 128}));
  EXPECT_EQ(first(2, 5), (V{8, 24, 72, 216, 648}));
  EXPECT_EQ(first(3, 5), (V{8, 40, 200, 1000, 5000}));
  EXPECT_EQ(first(4, 5), first(0, 5));
}

TEST(Mallocstress, EndsASeriesThatWraps) {
  SizeSeries fives(3);
  int steps = 0;
  while (fives.advance()) ++steps;
  EXPECT_EQ(steps, 26);  // 8 * 5^26 is the last below 2^64
}

// The numbers of blocks that a 256 GiB machine without swap grants: 50, 35, 23, 16 a round.
TEST(Mallocstress, SleepsAfterEachMallocEachFreeAndEachRound) {
  CountingPlatform p;
  CountingAllocator a;
  a.limit = 274'877'906'943;  // one byte less than the 36th block of scheme 1
  const Outcome out =
      stress(p, a, params_of("mallocstress", {{"threads", 4}, {"loops", 3}}));
  EXPECT_EQ(out.failure, "");
  EXPECT_EQ(a.sizes.size(), out.counts.at("mallocs"));
  EXPECT_EQ(a.freed.size(), out.counts.at("frees"));
  const std::uint64_t blocks = 50 + 35 + 23 + 16;
  EXPECT_EQ(out.counts.at("frees"), 3 * blocks);
  EXPECT_EQ(out.counts.at("refused-mallocs"), 3U * 3);  // scheme 0 stops at 50 blocks
  EXPECT_EQ(p.sleeps, 3 * (2 * blocks + 4));
}

TEST(Mallocstress, FreesInTheOrderOfAllocation) {
  CountingPlatform p;
  CountingAllocator a;
  stress(p, a, params_of("mallocstress", {{"threads", 1}, {"loops", 1}, {"maxptrs", 4}}));
  EXPECT_EQ(a.freed, (std::vector<alloc::Addr>{32, 48, 64, 80}));
  EXPECT_EQ(p.words,
            (std::map<alloc::Addr, std::uint64_t>{{32, 0}, {48, 1}, {64, 2}, {80, 3}}));
}

TEST(Mallocstress, NoticesABlockThatLostItsContent) {
  CountingPlatform p;
  CountingAllocator a;
  a.spoil = true;
  const Outcome out = stress(
      p, a, params_of("mallocstress", {{"threads", 1}, {"loops", 1}, {"maxptrs", 4}}));
  EXPECT_EQ(out.failure, "3 blocks lost what was written to them");
}

TEST(Touch, WalksTheAreaInStrides) {
  CountingPlatform p;
  const Outcome out = touch(p, params_of("touch", {{"map", 100}, {"stride", 30}}));
  EXPECT_EQ(out.counts.at("touches"), 4U);
  EXPECT_EQ(p.touched,
            (std::vector<alloc::Addr>{0x10000, 0x10000 + 30, 0x10000 + 60, 0x10000 + 90}));
  EXPECT_EQ(p.last_kind, alloc::Touch::kWrite);
  touch(p, params_of("touch", {{"map", 100}, {"stride", 30}, {"count", 2}, {"access", 1}}));
  EXPECT_EQ(p.touched.size(), 6U);
  EXPECT_EQ(p.last_kind, alloc::Touch::kRead);
}

TEST(Workloads, AreFoundByNameAndKnowTheirDefaults) {
  EXPECT_EQ(find("no such"), nullptr);
  for (const WorkloadDecl& w : all()) {
    EXPECT_EQ(find(w.name), &w);
    const Params params(w);
    for (const ParamDecl& p : w.params) {
      EXPECT_EQ(params.number(p.name), p.default_value);
      if (p.type == ParamType::kChoice) continue;
      EXPECT_GE(p.default_value, p.min) << w.name << "." << p.name;
      EXPECT_LE(p.default_value, p.max) << w.name << "." << p.name;
    }
  }
}

}  // namespace
}  // namespace faultline::workloads
