// SPDX-License-Identifier: Apache-2.0
//
// The real jemalloc 5.3 on the modelled kernel: threads that wait in a hook while others
// are inside the library, volatile ranges, and the same result each time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/jemalloc/conf.h"
#include "allocator/jemalloc53/jemalloc53.h"
#include "allocator/platform/recording.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{512} << 10;

class Jemalloc53Model : public testing::Test {
 protected:
  void SetUp() override {
    if (!je53::kAvailable) GTEST_SKIP() << "built without " << je53::kPackage;
  }
};

je::Settings conf(const std::string& text) {
  const je::ConfResult read = je::parse_conf_53(text);
  EXPECT_EQ(read.problem, "");
  return read.settings;
}

// Threads that take, fill, check and free blocks of several sizes, in one or more arenas.
struct Threads {
  static constexpr unsigned kThreads = 6, kRounds = 40;
  Jemalloc53<Model>* heap;
  std::vector<std::vector<Addr>> blocks = std::vector<std::vector<Addr>>(kThreads);
  unsigned lost = 0;

  void body(Model& p, unsigned thread) {
    for (unsigned i = 0; i < kRounds; ++i) {
      const std::uint64_t size = kBlock >> (i + thread) % 4;
      const Addr large = heap->malloc(p, size), small = heap->malloc(p, 100 + i);
      const std::uint64_t stamp = std::uint64_t{thread} << 32 | i;
      for (std::uint64_t at = 0; at < size; at += 4096) p.store(large + at, stamp + at);
      p.store(small, stamp);
      p.cycles(5000 * (thread + 1));
      for (std::uint64_t at = 0; at < size; at += 4096)
        lost += p.load<std::uint64_t>(large + at) != stamp + at ? 1 : 0;
      lost += p.load<std::uint64_t>(small) != stamp ? 1 : 0;
      heap->free(p, large);
      if (i % 3 != 0) heap->free(p, small);
      blocks[thread].push_back(large);
      blocks[thread].push_back(small);
    }
  }
};

struct Outcome {
  std::vector<std::vector<Addr>> blocks;
  Time end;
  unsigned lost = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome run_threads(const std::string& options) {
  Outcome out;
  Machine machine({.cpus = 4, .vrange = kernel::VrangeVersion::k7});
  machine.run([&](Model& p) {
    Jemalloc53<Model> heap(p, conf(options));
    Threads threads{&heap};
    p.run_threads(
        Threads::kThreads,
        [](Model& thread, unsigned index, void* self) {
          static_cast<Threads*>(self)->body(thread, index);
        },
        &threads);
    out.blocks = threads.blocks;
    out.lost = threads.lost;
  });
  out.end = machine.engine.now();
  return out;
}

TEST_F(Jemalloc53Model, ThreadsInTheKernelDontDisturbOneAnother) {
  for (const char* options :
       {"dirty_decay_ms:0", "dirty_decay_ms:0,narenas:1",
        "dirty_decay_ms:0,narenas:2,purge:free", "dirty_decay_ms:0,narenas:1,purge:vrange",
        "dirty_decay_ms:1,muzzy_decay_ms:2,narenas:1"}) {
    const Outcome first = run_threads(options);
    EXPECT_EQ(first.lost, 0u) << options;
    EXPECT_TRUE(first == run_threads(options)) << options;
  }
}

TEST_F(Jemalloc53Model, ARecordWithVolatileRangesIsTwoCallsAndNoFault) {
  Machine machine({.vrange = kernel::VrangeVersion::k7});
  machine.run([&](Model& model) {
    SysLog log;
    Recording<Model> p(model, log);
    Jemalloc53<Recording<Model>> heap(p, conf("dirty_decay_ms:0,purge:vrange"));
    const auto record = [&] {
      const Addr mem = heap.malloc(p, kBlock);
      p.set(mem, 1, kBlock);
      heap.free(p, mem);
    };
    for (int i = 0; i < 5; ++i) record();
    log.clear();
    const std::uint64_t before = machine.process.minflt;
    record();
    EXPECT_EQ(machine.process.minflt - before, 0u);
    EXPECT_EQ(log.count(SysName::kVrange), 2u);
    EXPECT_EQ(log.size(), 2u);
  });
}

}  // namespace
}  // namespace faultline::alloc::modelled
