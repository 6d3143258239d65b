// SPDX-License-Identifier: Apache-2.0
//
// Allocators that give memory back by vrange, on the modelled kernel and under pressure:
// what the hack as posted dies of, and what those that un-mark live through.
#include <gtest/gtest.h>

#include "allocator/jemalloc/jemalloc.h"
#include "allocator/platform/model.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

constexpr std::uint64_t kBlock = 512 << 10, kMemory = 64 << 20;

struct Outcome {
  bool bus_error = false;
  std::uint64_t faults = 0;  // of filling the block again
};

template <typename Allocator>
struct Work {
  Allocator& heap;
  kernel::Process& process;
  Outcome outcome;

  // A thread frees a block, memory becomes short, and it allocates and fills one again.
  void run(Model& p) {
    for (int i = 0; i < 3; ++i) use(p);
    be_short_of_memory(p);
    const std::uint64_t before = process.minflt;
    use(p);
    outcome.faults = process.minflt - before;
  }
  void use(Model& p) {
    const Addr mem = heap.malloc(p, kBlock);
    p.set(mem, 1, kBlock);
    heap.free(p, mem);
  }
  void be_short_of_memory(Model& p) {
    constexpr std::uint64_t kTaken = kMemory;
    const Addr at = p.mmap(0, kTaken, sys::kProtRead | sys::kProtWrite,
                           sys::kMapPrivate | sys::kMapAnonymous | sys::kMapNoreserve)
                        .value;
    constexpr std::uint64_t kStep = 64 << 10;
    const kernel::Vmstat& vmstat = process.kernel().vmstat();
    for (std::uint64_t done = 0; done < kTaken && vmstat.vrange_victims == 0;
         done += kStep) {
      p.touch(at + done, kStep, Touch::kWrite);
      p.usleep(1000);  // kswapd gets its turn
    }
    p.munmap(at, kTaken);
  }
};

template <typename Allocator, typename... Args>
Outcome outcome_of(Args&&... args) {
  Machine machine(
      {.kernel = "3.9", .memory_bytes = kMemory, .vrange = kernel::VrangeVersion::k7});
  Outcome outcome;
  try {
    machine.run([&](Model& main) {
      Allocator heap(main, std::forward<Args>(args)...);
      heap.free(main, heap.malloc(main, kBlock));
      Work<Allocator> work{heap, machine.process, {}};
      main.run_threads(
          1,
          [](Model& p, unsigned, void* arg) { static_cast<Work<Allocator>*>(arg)->run(p); },
          &work);
      outcome = work.outcome;
    });
  } catch (const ProgramKilled& killed) {
    EXPECT_EQ(killed.signal, kernel::Signal::kBus) << killed.what();
    outcome.bus_error = killed.signal == kernel::Signal::kBus;
    machine.engine.stop();  // the threads that were left in the middle of something
  }
  return outcome;
}

TEST(GiveBackUnderPressure, AsPostedGlibcDiesOfSigbus) {
  EXPECT_TRUE(outcome_of<Heap>(*find_release("2.21-vrange-as-posted")).bus_error);
}

TEST(GiveBackUnderPressure, DoneRightGlibcGetsZeroPagesForWhatWasPurged) {
  const Outcome o = outcome_of<Heap>(*find_release("2.21-vrange"));
  EXPECT_FALSE(o.bus_error);
  EXPECT_GE(o.faults, 96u);
}

TEST(GiveBackUnderPressure, JemallocGetsZeroPagesForWhatWasPurged) {
  je::Settings settings;
  settings.purge = je::Purge::kVrange;
  const Outcome o = outcome_of<Jemalloc<Model>>(settings);
  EXPECT_FALSE(o.bus_error);
  EXPECT_EQ(o.faults, 128u);
}

}  // namespace
}  // namespace faultline::alloc::modelled
