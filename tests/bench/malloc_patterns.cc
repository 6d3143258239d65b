// SPDX-License-Identifier: Apache-2.0
//
// malloc_patterns PATTERN OPERATIONS: plays a usual pattern of allocations on the malloc of
// the process, libc's or one preloaded, and prints the CPU nanoseconds of an operation (one
// malloc or one free, or one of each where the pattern says pair).
//
//   churn      16 blocks of 16-256 bytes: free the oldest, allocate another (pair)
//   random     2000 live blocks of 1-4000 bytes: replace a random one (pair)
//   producer   one thread allocates 64 bytes, another frees, in batches of 1000 (pair)
//   larson     4 threads, 1000 live blocks of 8-1000 bytes each, replaced at random (pair);
//   every
//              100,000th replacement a thread hands all its blocks to the next
//   large      16 live blocks of 20-200 KB: replace a random one and write its pages (pair)
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

namespace {

// xorshift64*: the same numbers for every malloc.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint32_t below(std::uint32_t n) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>(((state_ * 0x2545f4914f6cdd1dU) >> 32) * n >> 32);
  }

 private:
  std::uint64_t state_;
};

// The first bytes are written, as a program would.
char* make(std::size_t size) {
  char* const p = static_cast<char*>(std::malloc(size));
  if (p == nullptr) std::abort();
  *p = 1;
  return p;
}

void churn(std::uint64_t operations) {
  std::array<char*, 16> live{};
  Random random(1);
  for (std::uint64_t i = 0; i < operations; ++i) {
    char*& slot = live[i % live.size()];
    std::free(slot);
    slot = make(16 + random.below(241));
  }
  for (char* p : live) std::free(p);
}

void replace_at_random(std::vector<char*>& live, std::uint64_t operations, Random& random,
                       std::uint32_t least, std::uint32_t most) {
  const auto slots = static_cast<std::uint32_t>(live.size());
  for (std::uint64_t i = 0; i < operations; ++i) {
    char*& slot = live[random.below(slots)];
    std::free(slot);
    slot = make(least + random.below(most - least + 1));
  }
}

void free_all(const std::vector<char*>& live) {
  for (char* p : live) std::free(p);
}

void random_sizes(std::uint64_t operations) {
  std::vector<char*> live(2000);
  Random random(2);
  replace_at_random(live, operations, random, 1, 4000);
  free_all(live);
}

void large(std::uint64_t operations) {
  std::array<char*, 16> live{};
  Random random(4);
  for (std::uint64_t i = 0; i < operations; ++i) {
    char*& slot = live[random.below(16)];
    std::free(slot);
    const std::size_t size = 20'000 + random.below(180'000);
    slot = make(size);
    for (std::size_t at = 0; at < size; at += 4096) slot[at] = 1;
  }
  for (char* p : live) std::free(p);
}

// Batches of blocks go from one thread to another, which frees them.
void producer_consumer(std::uint64_t operations) {
  constexpr std::size_t kBatch = 1000;
  using Batch = std::array<char*, kBatch>;
  static std::array<Batch, 2> batches{};
  static std::array<std::atomic<bool>, 2> full{};
  const std::uint64_t rounds = (operations + kBatch - 1) / kBatch;
  std::thread consumer([rounds] {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      full[i % 2].wait(false);
      for (char* p : batches[i % 2]) std::free(p);
      full[i % 2].store(false);
      full[i % 2].notify_one();
    }
  });
  for (std::uint64_t i = 0; i < rounds; ++i) {
    full[i % 2].wait(true);
    for (char*& p : batches[i % 2]) p = make(64);
    full[i % 2].store(true);
    full[i % 2].notify_one();
  }
  consumer.join();
}

void larson(std::uint64_t operations) {
  constexpr unsigned kThreads = 4;
  constexpr std::uint64_t kRound = 100'000;
  std::array<std::vector<char*>, kThreads> live;
  for (auto& blocks : live) blocks.resize(1000);
  for (std::uint64_t round = 0; round * kRound * kThreads < operations; ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&blocks = live[(t + round) % kThreads], t, round] {
        Random random(10 + t + kThreads * round);
        replace_at_random(blocks, kRound, random, 8, 1000);
      });
    for (std::thread& thread : threads) thread.join();
  }
  for (const auto& blocks : live) free_all(blocks);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Pattern {
  std::string_view name;
  void (*play)(std::uint64_t operations);
};
constexpr std::array kPatterns = {Pattern{"churn", churn}, Pattern{"random", random_sizes},
                                  Pattern{"producer", producer_consumer},
                                  Pattern{"larson", larson}, Pattern{"large", large}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto pattern =
      std::ranges::find(kPatterns, std::string_view{argv[1]}, &Pattern::name);
  std::uint64_t operations = 0;
  const char* const end = argv[2] + std::strlen(argv[2]);
  if (pattern == kPatterns.end() || std::from_chars(argv[2], end, operations).ptr != end ||
      operations == 0) {
    std::fputs("usage: malloc_patterns churn|random|producer|larson|large OPERATIONS\n",
               stderr);
    return 2;
  }
  pattern->play(std::max<std::uint64_t>(operations / 20, 1));  // warm
  const double before = cpu_seconds();
  pattern->play(operations);
  std::printf("%.3f\n", (cpu_seconds() - before) * 1e9 / static_cast<double>(operations));
}
