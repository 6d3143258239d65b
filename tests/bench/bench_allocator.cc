// SPDX-License-Identifier: Apache-2.0
// What a malloc+free pair costs the host: the machine's own malloc, ptmalloc on the real
// kernel, and ptmalloc in the model.  One item is one pair.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdlib>
#include <memory>
#include <vector>

#include "allocator/platform/model.h"
#include "allocator/platform/native.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "arch_profiles/profile_loader.h"
#include "kernel_model/presets/presets.h"

namespace faultline::alloc {
namespace {

// What all three offer.
struct System {
  static Addr malloc(std::uint64_t n) { return reinterpret_cast<Addr>(std::malloc(n)); }
  static void free(Addr a) { std::free(std::bit_cast<void*>(a)); }
};
template <typename P>
struct Ours {
  P& p;
  Ptmalloc<P>& heap;
  Addr malloc(std::uint64_t n) const { return heap.malloc(p, n); }
  void free(Addr a) const { heap.free(p, a); }
};

// The patterns: each call does a known number of pairs.
struct OneSize {
  std::uint64_t size;
  static constexpr std::int64_t kPairs = 1;
  template <typename A>
  void operator()(const A& a) {
    const Addr block = a.malloc(size);
    benchmark::DoNotOptimize(block);
    a.free(block);
  }
};
struct Batch {
  std::uint64_t size;
  static constexpr std::int64_t kPairs = 16;
  template <typename A>
  void operator()(const A& a) {
    Addr blocks[kPairs];
    for (Addr& b : blocks) b = a.malloc(size);
    for (const Addr b : blocks) a.free(b);
  }
};
struct Random {
  std::uint64_t largest;
  static constexpr std::int64_t kPairs = 1;
  std::vector<Addr> live = std::vector<Addr>(2000);
  std::uint64_t state = 1;
  template <typename A>
  void operator()(const A& a) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    Addr& slot = live[(state >> 33) % live.size()];
    if (slot != 0) a.free(slot);
    slot = a.malloc(1 + (state >> 20) % largest);
  }
};

template <typename Pattern>
void run(benchmark::State& state, Pattern pattern, const auto& allocator) {
  for (auto _ : state) pattern(allocator);
  state.SetItemsProcessed(state.iterations() * Pattern::kPairs);
}

template <typename Pattern>
void with_system(benchmark::State& state, Pattern pattern) {
  run(state, pattern, System{});
}

template <typename Pattern>
void native(benchmark::State& state, Pattern pattern, const char* release) {
  const auto process = std::make_unique<NativeProcess>();
  Native p(*process);
  Ptmalloc<Native> heap(p, *find_release(release));
  run(state, pattern, Ours<Native>{p, heap});
}

template <typename Pattern>
void model(benchmark::State& state, Pattern pattern, const char* release) {
  const arch::Profile profile = arch::load_profile("x86-4k");
  Engine engine({profile.node_of_cpu, profile.node_distance}, {});
  kernel::Kernel kernel(engine, profile, kernel::load_preset("6.18"));
  ModelProcess process(kernel.create_process("bench"));
  engine.spawn("main", [&](Task& task) {
    Model p(process, task);
    Ptmalloc<Model> heap(p, *find_release(release));
    run(state, pattern, Ours<Model>{p, heap});
  });
  engine.run();
}

#define FAULTLINE_PATTERN(name, pattern)                       \
  BENCHMARK_CAPTURE(with_system, name, pattern);               \
  BENCHMARK_CAPTURE(native, name##_2_36, pattern, "2.36");     \
  BENCHMARK_CAPTURE(native, name##_2_43, pattern, "2.43-x86"); \
  BENCHMARK_CAPTURE(model, name##_2_36, pattern, "2.36");      \
  BENCHMARK_CAPTURE(model, name##_2_43, pattern, "2.43-x86")

FAULTLINE_PATTERN(tcache_pair, OneSize{24});
FAULTLINE_PATTERN(top_pair, OneSize{2000});
FAULTLINE_PATTERN(batch_of_16, Batch{24});
FAULTLINE_PATTERN(random_to_500, Random{500});
FAULTLINE_PATTERN(random_to_4000, Random{4000});

}  // namespace
}  // namespace faultline::alloc
