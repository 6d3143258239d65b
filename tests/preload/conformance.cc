// SPDX-License-Identifier: Apache-2.0
//
// What every malloc owes its caller: alignment, errno, contents over realloc, no overlap,
// usable sizes, threads that come and go, forks among threads.  Runs on whatever malloc it
// finds; prints what is broken and exits with 1.
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int> g_broken{0};

void expect(bool held, const char* what, std::size_t detail = 0) {
  if (held) return;
  ++g_broken;
  std::fprintf(stderr, "broken: %s (%zu)\n", what, detail);
}

// The compiler may not reason about what comes from malloc.
void* volatile g_sink;
void* opaque(void* p) {
  g_sink = p;
  return g_sink;
}

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 33;
}

void alignments() {
  for (std::size_t n = 0; n < 5000; n += 7) {
    void* const p = opaque(malloc(n));
    expect(reinterpret_cast<std::uintptr_t>(p) % alignof(std::max_align_t) == 0,
           "malloc is aligned", n);
    expect(malloc_usable_size(p) >= n, "usable size", n);
    std::memset(p, 0xa5, malloc_usable_size(p));
    free(p);
  }
  for (std::size_t a = 8; a <= 1 << 21; a *= 2) {
    void* p = nullptr;
    expect(posix_memalign(&p, a, 100) == 0, "posix_memalign", a);
    expect(reinterpret_cast<std::uintptr_t>(p) % a == 0, "posix_memalign is aligned", a);
    free(p);
    p = opaque(aligned_alloc(a, 3 * a));
    expect(p != nullptr && reinterpret_cast<std::uintptr_t>(p) % a == 0, "aligned_alloc",
           a);
    std::memset(p, 1, 3 * a);
    free(p);
  }
}

void errors() {
  void* p = &p;
  expect(posix_memalign(&p, 3, 8) == EINVAL, "alignment 3 is EINVAL");
  expect(posix_memalign(&p, 2, 8) == EINVAL, "alignment 2 is EINVAL");
  expect(p == &p, "a refused posix_memalign writes nothing");
  const volatile std::size_t huge = static_cast<std::size_t>(PTRDIFF_MAX) + 1;
  const volatile std::size_t half = SIZE_MAX / 2;
  errno = 0;
  expect(opaque(malloc(huge)) == nullptr && errno == ENOMEM, "malloc too large");
  errno = 0;
  expect(opaque(calloc(half, 3)) == nullptr && errno == ENOMEM, "calloc overflows");
  errno = 0;
  expect(opaque(reallocarray(nullptr, half, 3)) == nullptr && errno == ENOMEM,
         "reallocarray overflows");
  void* const kept = opaque(malloc(100));
  std::memset(kept, 7, 100);
  errno = 0;
  expect(opaque(realloc(kept, huge)) == nullptr && errno == ENOMEM, "realloc too large");
  expect(static_cast<char*>(kept)[99] == 7, "a refused realloc keeps the block");
  errno = 5;
  free(kept);
  expect(errno == 5, "free leaves errno alone");
  free(nullptr);
}

void contents() {
  std::uint64_t random = 42;
  auto* block = static_cast<unsigned char*>(malloc(1));
  block[0] = 0;
  std::size_t size = 1;
  for (int i = 0; i < 2000; ++i) {
    const std::size_t wanted = 1 + next_random(random) % (i % 50 == 0 ? 3'000'000 : 5000);
    block = static_cast<unsigned char*>(realloc(block, wanted));
    expect(block != nullptr, "realloc", wanted);
    for (std::size_t k = 0; k < size && k < wanted; k += 97)
      if (block[k] != static_cast<unsigned char>(k * 31)) {
        expect(false, "realloc keeps contents", k);
        break;
      }
    for (std::size_t k = 0; k < wanted; ++k) block[k] = static_cast<unsigned char>(k * 31);
    size = wanted;
  }
  free(block);
  for (std::size_t n = 1; n < 3'000'000; n = n * 3 + 1) {
    void* const dirty = opaque(malloc(n));
    std::memset(dirty, 0xff, n);
    free(dirty);
    auto* const zero = static_cast<unsigned char*>(opaque(calloc(1, n)));
    for (std::size_t k = 0; k < n; ++k)
      if (zero[k] != 0) {
        expect(false, "calloc is zero", k);
        break;
      }
    free(zero);
  }
}

// Blocks that hold their own number: overlap shows as a foreign one.  Every second block is
// handed to the next thread to be freed there.
constexpr int kSlots = 512;
std::atomic<std::uint64_t*> g_mail[64];

void* churn(void* arg) {
  const auto self = reinterpret_cast<std::uintptr_t>(arg);
  std::uint64_t random = self * 77 + 5;
  static thread_local std::uint64_t* mine[kSlots];
  static thread_local std::size_t words[kSlots];
  const auto check = [](const std::uint64_t* block, std::size_t n) {
    for (std::size_t w = 1; w < n; ++w)
      if (block[w] != (block[0] ^ w)) return false;
    return true;
  };
  for (int step = 0; step < 20000; ++step) {
    const std::size_t i = next_random(random) % kSlots;
    if (mine[i] != nullptr) {
      expect(check(mine[i], words[i]), "blocks don't overlap", i);
      std::uint64_t* gone = mine[i];
      if (step % 2 == 0) gone = g_mail[(self + 1) % 64].exchange(gone);
      free(gone);
      mine[i] = nullptr;
      continue;
    }
    words[i] = 1 + next_random(random) % (step % 500 == 0 ? 40'000 : 200);
    mine[i] = static_cast<std::uint64_t*>(malloc(words[i] * 8));
    expect(mine[i] != nullptr, "malloc in a thread");
    mine[i][0] = (self << 40) + static_cast<std::uint64_t>(step);
    for (std::size_t w = 1; w < words[i]; ++w) mine[i][w] = mine[i][0] ^ w;
  }
  for (std::uint64_t* block : mine) free(block);
  return nullptr;
}

void threads(unsigned count) {
  pthread_t all[64];
  for (unsigned round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < count; ++i)
      pthread_create(&all[i], nullptr, churn,
                     std::bit_cast<void*>(static_cast<std::uintptr_t>(i)));
    // Forks amid the others' calls: the child must be able to allocate.
    for (int f = 0; f < 5; ++f) {
      const pid_t child = fork();
      if (child == 0) {
        for (int k = 0; k < 2000; ++k)
          free(opaque(malloc(static_cast<std::size_t>(k) * 13)));
        _exit(0);
      }
      int status = 1;
      waitpid(child, &status, 0);
      expect(status == 0, "a child allocates", static_cast<std::size_t>(status));
    }
    for (unsigned i = 0; i < count; ++i) pthread_join(all[i], nullptr);
  }
  for (auto& slot : g_mail) free(slot.exchange(nullptr));
}

void reports() {
  void* const block = opaque(malloc(1000));
  const struct mallinfo2 info = mallinfo2();
  expect(info.uordblks >= 1000 && info.uordblks <= info.arena, "mallinfo2", info.uordblks);
  expect(mallopt(M_TOP_PAD, 65536) == 1, "mallopt");
  malloc_trim(0);
  free(block);
  FILE* const null = std::fopen("/dev/null", "w");
  expect(malloc_info(0, null) == 0, "malloc_info");
  expect(malloc_info(1, null) != 0, "malloc_info has no options");
  std::fclose(null);
}

// Allocates until there is no more, gives it back and allocates again.  0: all as it
// should.
int use_up(std::size_t size) {
  void** list = nullptr;
  for (;;) {
    errno = 0;
    void* const block = opaque(malloc(size));
    if (block == nullptr) break;
    *static_cast<void**>(block) = list;
    list = static_cast<void**>(block);
  }
  const bool said = errno == ENOMEM;
  const bool others =
      opaque(calloc(1, size)) == nullptr && opaque(memalign(4096, size)) == nullptr;
  while (list != nullptr) {
    void** const next = static_cast<void**>(*list);
    free(list);
    list = next;
  }
  void* const again = opaque(malloc(size));
  const bool recovered = again != nullptr;
  free(again);
  return said && others && recovered ? 0 : 1;
}

// In a child whose address space is limited; sizes from the heap and sizes with mappings.
void exhaustion() {
  for (const std::size_t size :
       {std::size_t{24}, std::size_t{5000}, std::size_t{300'000}}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{.rlim_cur = rlim_t{256} << 20, .rlim_max = rlim_t{256} << 20};
      setrlimit(RLIMIT_AS, &limit);
      _exit(use_up(size));
    }
    int status = 1;
    waitpid(child, &status, 0);
    expect(status == 0, "memory used up: NULL, ENOMEM, and it goes on", size);
  }
}

}  // namespace

int main(int argc, char** argv) {
  alignments();
  errors();
  contents();
  exhaustion();
  threads(argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 64);
  const bool without_reports = argc > 2;  // its reports are there, but of another malloc
  if (!without_reports) reports();
  return g_broken == 0 ? 0 : 1;
}
