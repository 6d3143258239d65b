// SPDX-License-Identifier: Apache-2.0
//
// What leaving a guest costs, on the guest where it runs: the machine.costs.virt_exit of a
// scenario.  Prints the medians of
//
//   exit       CPUID, which every hypervisor intercepts: one exit
//   shootdown  MADV_FREE of four pages while a thread spins on another CPU, less the same
//              call alone: the sender writes the interrupt's command and waits
//   interrupt  what the spinning thread loses: the interrupt and its end
//
// In the model the sender exits three times and the receiver twice (virtualise() in
// arch_profiles/profile_build.cc).  A guest within a guest, AMD EPYC of 2.6 GHz,
// Linux 6.18, has 3.5, 9.3 to 11.0 and 5.7 to 6.7 us.  Needs two CPUs, and nobody else on
// them.
#include <cpuid.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20000;
constexpr std::size_t kBytes = 4 * 4096;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    std::fprintf(stderr, "vm_exit: can't pin to CPU %d; the figures mix\n", cpu);
}

double exit_time() {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const Clock::time_point start = Clock::now();
    __cpuid(0, a, b, c, d);
    times.push_back(since(start));
  }
  return median(std::move(times));
}

// await_other() returns when a flush has somebody to reach.
template <typename AwaitOther>
double madv_free_time(char* pages, AwaitOther await_other) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    std::memset(pages, 1, kBytes);
    await_other();
    const Clock::time_point start = Clock::now();
    madvise(pages, kBytes, MADV_FREE);
    times.push_back(since(start));
  }
  return median(std::move(times));
}

// Gaps in a thread that does nothing but look at the clock: longer than the look itself,
// and shorter than losing the CPU to somebody else.
void watch_gaps(std::atomic<std::uint64_t>& beats, const std::atomic<bool>& go,
                std::vector<double>& gaps) {
  constexpr double kShortest = 0.5, kLongest = 30;
  pin_to(1);
  for (Clock::time_point last = Clock::now(); go;) {
    beats.fetch_add(1, std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    const double gap = std::chrono::duration<double, std::micro>(now - last).count();
    if (gap > kShortest && gap < kLongest) gaps.push_back(gap);
    last = now;
  }
}

}  // namespace

int main() {
  if (std::thread::hardware_concurrency() < 2) {
    std::fputs("vm_exit: needs two CPUs\n", stderr);
    return 2;
  }
  pin_to(0);
  void* const map =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    std::perror("vm_exit: mmap");
    return 2;
  }
  const double alone = madv_free_time(static_cast<char*>(map), [] {});
  std::vector<double> gaps;
  std::atomic<std::uint64_t> beats{0};
  std::atomic<bool> go{true};
  std::thread other([&] { watch_gaps(beats, go, gaps); });
  // Only while it is on its CPU are there TLBs of ours to flush there.
  const double together = madv_free_time(static_cast<char*>(map), [&] {
    const std::uint64_t before = beats;
    while (beats == before) std::this_thread::yield();
  });
  go = false;
  other.join();
  std::printf("exit       %6.2f us\nshootdown  %6.2f us\ninterrupt  %6.2f us\n",
              exit_time(), together - alone, median(std::move(gaps)));
  return 0;
}
