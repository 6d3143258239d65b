// SPDX-License-Identifier: Apache-2.0
//
// The modelled platform by itself, and the allocator's threads, locks and faults on it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "scenarios/workloads/mallocstress.h"
#include "sim/cost_centre.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr unsigned kRw = sys::kProtRead | sys::kProtWrite;
constexpr unsigned kAnon = sys::kMapPrivate | sys::kMapAnonymous;

Addr map(Model& p, std::uint64_t bytes) {
  const SysValue r = p.mmap(0, bytes, kRw, kAnon);
  EXPECT_TRUE(r.ok());
  return r.value;
}

TEST(ModelMemory, HoldsWhatIsStoredAndLosesWhatIsDiscarded) {
  Machine m;
  m.run([](Model& p) {
    const Addr a = map(p, 1 << 20);
    p.store<std::uint64_t>(a + 4096 - 8, 7);
    p.store<std::uint8_t>(a + 4096, 8);
    EXPECT_EQ(p.load<std::uint64_t>(a + 4096 - 8), 7u);
    EXPECT_EQ(p.madvise(a, 4096, sys::kMadvDontneed), 0);
    EXPECT_EQ(p.load<std::uint64_t>(a + 4096 - 8), 0u);
    EXPECT_EQ(p.load<std::uint8_t>(a + 4096), 8u);
    EXPECT_EQ(p.munmap(a, 1 << 20), 0);
    const Addr again = map(p, 1 << 20);
    EXPECT_EQ(again, a);
    EXPECT_EQ(p.load<std::uint8_t>(again + 4096), 0u);
  });
}

TEST(ModelMemory, TouchingCostsTheModelFaultsAndTheHostNothing) {
  Machine m;
  m.run([&](Model& p) {
    const std::uint64_t before = m.process.minflt;
    const std::uint64_t host = m.model.host_pieces();
    const Addr a = map(p, 64 << 20);
    p.touch(a, 64 << 20, Touch::kWrite);
    EXPECT_EQ(m.process.minflt - before, 16384u);
    EXPECT_EQ(m.model.host_pieces(), host);
    p.store<std::uint64_t>(a, 1);
    EXPECT_EQ(m.model.host_pieces(), host + 1);
    EXPECT_EQ(m.process.minflt - before, 16384u);
  });
}

TEST(ModelMemory, TouchReachesTheLastPageOfARange) {
  Machine m;
  m.run([&](Model& p) {
    const Addr a = map(p, 1 << 20);
    const std::uint64_t before = m.process.minflt;
    p.touch(a + 4000, 200, Touch::kWrite);
    EXPECT_EQ(m.process.minflt - before, 2u);
  });
}

TEST(ModelMemory, AWriteAfterAReadFaultsOnTheZeroPage) {
  Machine m;
  m.run([&](Model& p) {
    const Addr a = map(p, 1 << 20);
    const std::uint64_t before = m.process.minflt;
    EXPECT_EQ(p.load<std::uint32_t>(a), 0u);
    p.store<std::uint32_t>(a, 5);
    EXPECT_EQ(m.process.minflt - before, 2u);
    EXPECT_EQ(p.load<std::uint32_t>(a), 5u);
  });
}

TEST(ModelMemory, SetAndCopyCrossPages) {
  Machine m;
  m.run([](Model& p) {
    const Addr a = map(p, 1 << 20);
    p.set(a + 4090, 0xab, 20);
    p.copy(a + 12280, a + 4090, 20);
    for (unsigned i = 0; i < 20; ++i) EXPECT_EQ(p.load<std::uint8_t>(a + 12280 + i), 0xab);
    EXPECT_EQ(p.load<std::uint8_t>(a + 12279), 0);
    p.copy(a + 4090, a + 65536, 20);  // from pages that were never written
    EXPECT_EQ(p.load<std::uint8_t>(a + 4095), 0);
  });
}

TEST(ModelMemory, AMovedMappingKeepsItsBytes) {
  Machine m;
  m.run([](Model& p) {
    const Addr a = map(p, 1 << 20);
    map(p, 1 << 20);
    p.store<std::uint64_t>(a + 8192, 99);
    const SysValue moved = p.mremap(a, 1 << 20, 8 << 20, sys::kMremapMaymove);
    ASSERT_TRUE(moved.ok());
    EXPECT_EQ(p.load<std::uint64_t>(moved.value + 8192), 99u);
  });
}

TEST(ModelMemory, AccessToNothingEndsTheRunWithTheSignal) {
  Machine m;
  try {
    m.run([](Model& p) {
      const Addr a = map(p, 4096);
      p.store<std::uint8_t>(a, 1);
      p.munmap(a, 4096);
      p.store<std::uint8_t>(a, 1);
    });
    FAIL() << "the program lived";
  } catch (const ProgramKilled& killed) {
    EXPECT_EQ(killed.signal, kernel::Signal::kSegv);
    EXPECT_NE(std::string(killed.what()).find("SIGSEGV, writing at 0x"), std::string::npos);
  }
}

TEST(ModelMemory, AProtectedPageIsNoLongerWritable) {
  Machine m;
  EXPECT_THROW(m.run([](Model& p) {
    const Addr a = map(p, 4096);
    p.store<std::uint8_t>(a, 1);
    p.mprotect(a, 4096, sys::kProtRead);
    EXPECT_EQ(p.load<std::uint8_t>(a), 1);
    p.store<std::uint8_t>(a, 2);
  }),
               ProgramKilled);
}

TEST(ModelProcesses, SeveralLiveAtOnceAndOneAfterTheOther) {
  const auto use = [](Machine& m, std::uint64_t mark) {
    Addr kept = 0;
    m.run([&](Model& p) {
      kept = map(p, 1 << 20);
      p.store(kept, mark);
    });
    return kept;
  };
  Machine first;
  const Addr a = use(first, 1);
  for (std::uint64_t i = 2; i < 5; ++i) {
    Machine other;
    EXPECT_EQ(use(other, i), a);
  }
  first.run([&](Model& p) { EXPECT_EQ(p.load<std::uint64_t>(a), 1u); });
}

TEST(ModelBreak, IsAskedForOnceAndRefusedWithENOMEM) {
  Machine m;
  m.run([](Model& p) {
    const Addr start = p.sbrk(0).value;
    EXPECT_EQ(p.sbrk(5000).value, start);
    EXPECT_EQ(p.sbrk(0).value, start + 5000);
    p.store<std::uint8_t>(start + 4999, 1);
    EXPECT_EQ(p.sbrk(std::int64_t{1} << 46).error, sys::kENOMEM);
    EXPECT_EQ(p.sbrk(-5000).value, start + 5000);
    EXPECT_EQ(p.sbrk(0).value, start);
  });
}

TEST(ModelThreads, RunTogetherAndAreJoined) {
  Machine m;
  struct Seen {
    std::vector<unsigned> order;
    Time first_start = Time::never(), last_start;
    Addr word = 0;
  } seen;
  m.run([&](Model& p) {
    seen.word = map(p, 4096);
    p.run_threads(
        5,
        [](Model& t, unsigned index, void* arg) {
          auto& s = *static_cast<Seen*>(arg);
          s.order.push_back(index);
          s.first_start = std::min(s.first_start, t.task().now());
          s.last_start = std::max(s.last_start, t.task().now());
          t.usleep(100);
          t.atomic_add(s.word, 1);
        },
        &seen);
    EXPECT_TRUE(p.multi_threaded());
    EXPECT_EQ(p.load<std::uint64_t>(seen.word), 5u);
  });
  EXPECT_EQ(seen.order.size(), 5u);
  EXPECT_LT(seen.last_start - seen.first_start, Duration::us(100));
}

TEST(ModelThreads, KeepFourStacksOf8MiBInACacheOf40) {
  Machine m;
  m.run([&](Model& p) {
    const auto nothing = [](Model&, unsigned, void*) {};
    p.run_threads(6, nothing, nullptr);
    std::uint64_t stacks = 0;
    const auto count = [&] {
      stacks = 0;
      for (const kernel::Vma& vma : m.process.mm().vmas)
        if (vma.bytes() >= (8 << 20)) stacks += vma.bytes() >> 23;
    };
    const std::uint64_t total = m.process.mm().total_vm;
    p.run_threads(4, nothing, nullptr);
    EXPECT_EQ(m.process.mm().total_vm, total);  // all four came from the cache
    count();
    EXPECT_EQ(stacks, 4u);
  });
}

struct Contest {
  Addr lock = 0, word = 0;
};
TEST(ModelLocks, ExcludeAndCostCallsWhenContended) {
  Machine m({.cpus = 4});
  Contest c;
  m.run([&](Model& p) {
    c.lock = map(p, 4096);
    c.word = c.lock + 64;
    p.run_threads(
        4,
        [](Model& t, unsigned, void* arg) {
          const auto& contest = *static_cast<Contest*>(arg);
          for (int i = 0; i < 50; ++i) {
            t.lock(t.lock_at(contest.lock, "test lock"));
            const auto v = t.load<std::uint64_t>(contest.word);
            t.usleep(1);
            t.store(contest.word, v + 1);
            t.unlock(t.lock_at(contest.lock, "test lock"));
            t.usleep(1);
          }
        },
        &c);
    EXPECT_EQ(p.load<std::uint64_t>(c.word), 200u);
  });
  const LockStats& stats = m.engine.locks().of("test lock");
  EXPECT_EQ(stats.write.acquired, 200u);
  EXPECT_GT(stats.write.contended, 50u);
  EXPECT_GT(stats.write.wait, Duration{});
}

TEST(ModelAttribution, NamesTheAllocatorsFunctionsAndTheKernelsBelow) {
  Machine m;
  m.run([&](Model& p) {
    Heap heap(p, *find_release("2.36"));
    heap.free(p, heap.malloc(p, 100));
  });
  std::string all;
  for (const auto& node : m.engine.centres().nodes()) all += CentreTree::path(node) + "\n";
  EXPECT_NE(all.find("malloc;tcache_init;_int_malloc;sysmalloc;"), std::string::npos)
      << all;
  EXPECT_NE(all.find("sys_brk"), std::string::npos) << all;
  EXPECT_NE(all.find("free"), std::string::npos);
}

TEST(ModelHeap, FaultsOfAFreshBlock) {
  Machine m;
  m.run([&](Model& p) {
    Heap heap(p, *find_release("2.36"));
    heap.malloc(p, 24);
    const std::uint64_t before = m.process.minflt;
    heap.malloc(p, 3 << 20);
    EXPECT_EQ(m.process.minflt - before, 1u);
    heap.memalign(p, 1 << 20, 3 << 20);
    EXPECT_EQ(m.process.minflt - before, 3u);
  });
}

TEST(ModelHeap, TwentyFourThreadsOnTwoCpusMakeSixteenArenas) {
  Machine m;
  m.run([&](Model& p) {
    Heap heap(p, *find_release("2.36"));
    p.run_threads(
        24,
        [](Model& t, unsigned, void* arg) {
          auto& h = *static_cast<Heap*>(arg);
          const Addr mem = h.malloc(t, 100);
          t.usleep(1000);
          h.free(t, mem);
        },
        &heap);
    EXPECT_EQ(heap.shared(p, Shared::kArenas), 16u);
  });
}

// One thread of LTP's mallocstress on a machine with 23.5 GB: how many blocks the
// overcommit heuristic allows, and the faults of each round, as getrusage(RUSAGE_THREAD)
// counted them on glibc 2.36 and Linux 6.18.  The first round also faults in code and stack
// of the real program.
TEST(ModelHeap, MallocstressBlocksAndFaultsOfARound) {
  struct Measured {
    std::size_t blocks;
    std::uint64_t second, third, later;
  };
  const Measured measured[] = {
      {46, 27, 27, 27}, {32, 18, 10, 10}, {20, 11, 6, 6}, {14, 8, 4, 4}};
  struct Round {
    std::size_t blocks;
    std::uint64_t faults;
  };
  struct Run {
    Heap* heap;
    kernel::Process* process;
    unsigned scheme;
    std::vector<Round> rounds;
  };
  for (unsigned scheme = 0; scheme < 4; ++scheme) {
    Machine m({.memory_bytes = 23'500'000'000});
    Run run{nullptr, &m.process, scheme, {}};
    m.run([&](Model& p) {
      Heap heap(p, *find_release("2.36"));
      run.heap = &heap;
      p.run_threads(
          1,
          [](Model& t, unsigned, void* arg) {
            auto& r = *static_cast<Run*>(arg);
            std::vector<Addr> blocks;
            workloads::MallocstressThread count;
            for (int loop = 0; loop < 6; ++loop) {
              const std::uint64_t before = r.process->minflt;
              workloads::mallocstress_round(t, *r.heap, r.scheme, 50, blocks, count);
              r.rounds.push_back({blocks.size(), r.process->minflt - before});
            }
          },
          &run);
    });
    const Measured& real = measured[scheme];
    for (std::size_t i = 1; i < run.rounds.size(); ++i) {
      EXPECT_EQ(run.rounds[i].blocks, real.blocks) << "scheme " << scheme << " round " << i;
      EXPECT_EQ(run.rounds[i].faults, i == 1   ? real.second
                                      : i == 2 ? real.third
                                               : real.later)
          << "scheme " << scheme << " round " << i;
    }
  }
}

// Virtual time is the same however often the program runs.
TEST(ModelHeap, MallocstressOfSixThreadsIsDeterministic) {
  const auto run = [] {
    Machine m({.thp = kernel::ThpEnabled::kAlways, .cpus = 3});
    std::uint64_t spoilt = 0;
    m.run([&](Model& p) {
      Heap heap(p, *find_release("2.36"));
      struct Shared {
        Heap& heap;
        std::vector<workloads::MallocstressThread> counts;
      } shared{heap, std::vector<workloads::MallocstressThread>(6)};
      p.run_threads(
          6,
          [](Model& t, unsigned index, void* arg) {
            auto& s = *static_cast<Shared*>(arg);
            std::vector<Addr> blocks;
            for (int loop = 0; loop < 4; ++loop)
              workloads::mallocstress_round(t, s.heap, index % 4, 50, blocks,
                                            s.counts[index]);
          },
          &shared);
      for (const auto& c : shared.counts) spoilt += c.spoilt;
    });
    EXPECT_EQ(spoilt, 0u);
    return std::pair(m.engine.now().since_start().count_ps(), m.process.minflt);
  };
  const auto first = run();
  EXPECT_GT(first.second, 100u);
  EXPECT_EQ(run(), first);
}

}  // namespace
}  // namespace faultline::alloc::modelled
