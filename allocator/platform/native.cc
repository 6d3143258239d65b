// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/native.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace faultline::alloc {
namespace {

#if defined(__aarch64__)
constexpr Architecture kArchitecture = Architecture::kAArch64;
#elif defined(__loongarch__)
constexpr Architecture kArchitecture = Architecture::kLoongArch;
#elif defined(__mips__)
constexpr Architecture kArchitecture = Architecture::kMips;
#elif defined(__powerpc__)
constexpr Architecture kArchitecture = Architecture::kPowerPc;
#elif defined(__riscv)
constexpr Architecture kArchitecture = Architecture::kRiscV;
#elif defined(__s390__)
constexpr Architecture kArchitecture = Architecture::kS390;
#elif defined(__sparc__)
constexpr Architecture kArchitecture = Architecture::kSparc;
#else
constexpr Architecture kArchitecture = Architecture::kX86;
#endif

// Whoever calls an allocator keeps its errno.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

int error_of(long result) {
  return result == -1 ? errno : 0;
}

SysValue value_of(void* result) {
  if (result == MAP_FAILED) return {0, errno};
  return {std::bit_cast<Addr>(result), 0};
}

// The first bytes of a small file of /proc or /sys; empty if it isn't there.
std::size_t read_file(const char* path, char* to, std::size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, to, room - 1);
  close(fd);
  const std::size_t n = got > 0 ? static_cast<std::size_t>(got) : 0;
  to[n] = '\0';
  return n;
}

std::uint64_t read_number(const char* path) {
  char text[64];
  return read_file(path, text, sizeof text) == 0 ? 0 : std::strtoull(text, nullptr, 10);
}

char thp_mode() {
  char text[128];
  if (read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) == 0)
    return 'n';
  const char* const chosen = std::strchr(text, '[');
  return chosen != nullptr ? chosen[1] : 'n';
}

std::uint64_t hugetlb_default() {
  char text[4096];
  if (read_file("/proc/meminfo", text, sizeof text) == 0) return 0;
  const char* const line = std::strstr(text, "Hugepagesize:");
  return line == nullptr
             ? 0
             : std::strtoull(line + sizeof "Hugepagesize:" - 1, nullptr, 10) << 10;
}

// Entries are called hugepages-2048kB.
void read_hugetlb_sizes(std::array<std::uint64_t, 8>& sizes) {
  const int fd = open("/sys/kernel/mm/hugepages", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  struct Entry {  // struct linux_dirent64
    std::uint64_t ino;
    std::int64_t off;
    std::uint16_t length;
    std::uint8_t type;
    char name[1];
  };
  constexpr char kPrefix[] = "hugepages-";
  alignas(Entry) char buffer[2048];
  std::size_t found = 0;
  for (long got = 0; (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < got;) {
      const auto* const entry = reinterpret_cast<const Entry*>(buffer + at);
      if (std::strncmp(entry->name, kPrefix, sizeof kPrefix - 1) == 0 &&
          found < sizes.size())
        sizes[found++] = std::strtoull(entry->name + sizeof kPrefix - 1, nullptr, 10) << 10;
      at += entry->length;
    }
  close(fd);
}

}  // namespace

NativeProcess::NativeProcess(Threads threads) : all_threads_(threads == Threads::kAll) {
  facts_.architecture = kArchitecture;
  facts_.page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  facts_.cpus = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
  facts_.thp_size = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  facts_.thp_mode = thp_mode();
  facts_.hugetlb_default = hugetlb_default();
  read_hugetlb_sizes(facts_.hugetlb_sizes);
  facts_.overcommit_memory =
      static_cast<unsigned>(read_number("/proc/sys/vm/overcommit_memory"));
}

void FutexLock::lock_slow() {
  const KeepErrno keep;
  while (state_.exchange(2, std::memory_order_acquire) != 0)
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
}

void FutexLock::wake_one() {
  const KeepErrno keep;
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

SysValue Native::mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags) {
  const KeepErrno keep;
  return value_of(::mmap(pointer(hint), length, static_cast<int>(prot),
                         static_cast<int>(flags), -1, 0));
}
int Native::munmap(Addr start, std::uint64_t length) {
  const KeepErrno keep;
  return error_of(::munmap(pointer(start), length));
}
int Native::mprotect(Addr start, std::uint64_t length, unsigned prot) {
  const KeepErrno keep;
  return error_of(::mprotect(pointer(start), length, static_cast<int>(prot)));
}
int Native::madvise(Addr start, std::uint64_t length, int advice) {
  const KeepErrno keep;
  return error_of(::madvise(pointer(start), length, advice));
}
SysValue Native::mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                        unsigned flags) {
  const KeepErrno keep;
  return value_of(::mremap(pointer(start), old_length, length, static_cast<int>(flags)));
}

// The program's other users of the break (libc's own sbrk) are followed by asking libc,
// which remembers it without a system call.
SysValue Native::sbrk(std::int64_t delta) {
  const KeepErrno keep;
  void* const old = ::sbrk(delta);
  if (old == std::bit_cast<void*>(~Addr{0})) return {0, errno};
  return {std::bit_cast<Addr>(old), 0};
}

std::uint64_t Native::monotonic_ns() {
  constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void Native::usleep(std::uint64_t microseconds) {
  const KeepErrno keep;
  timespec t{};
  t.tv_sec = static_cast<time_t>(microseconds / 1'000'000);
  t.tv_nsec = static_cast<long>(microseconds % 1'000'000 * 1000);
  syscall(SYS_clock_nanosleep, 0, 0, &t, nullptr);
}

std::uint64_t Native::random_key() {
  const KeepErrno keep;
  constexpr unsigned kNonblock = 1;  // GRND_NONBLOCK
  std::uint64_t key = 0;
  if (syscall(SYS_getrandom, &key, sizeof key, kNonblock) != sizeof key)
    key = 0x9e37'79b9'7f4a'7c15;
  return key;
}

void Native::touch(Addr start, std::uint64_t length, Touch kind) {
  const Addr end = start + length;
  for (Addr at = start; at < end;
       at = (at & ~(facts().page_size - 1)) + facts().page_size) {
    // A write that reads first would fault twice.
    auto* const byte = std::bit_cast<unsigned char*>(at);
    if (kind == Touch::kWrite)
      __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
    else
      static_cast<void>(__atomic_load_n(byte, __ATOMIC_RELAXED));
  }
}

Addr Native::static_storage(std::uint64_t n) {
  const std::size_t at = process_.storage_used_.fetch_add((n + 63) & ~std::uint64_t{63});
  if (at + n > process_.storage_.size()) {
    std::fputs("static storage of the allocator is used up\n", stderr);
    std::abort();
  }
  return std::bit_cast<Addr>(&process_.storage_[at]);
}

namespace {

struct Crew {
  NativeProcess* process;
  const ThreadHooks<Native>* hooks;
  void (*body)(Native&, unsigned, void*);
  void* arg;
  std::atomic<std::uint32_t> released = 0;
};
struct Worker {
  Crew* crew = nullptr;
  unsigned index = 0;
  pthread_t thread{};
  Addr block = 0;
};

void* run_worker(void* arg) {
  const Worker& w = *static_cast<Worker*>(arg);
  Crew& crew = *w.crew;
  while (crew.released.load(std::memory_order_acquire) == 0)
    syscall(SYS_futex, &crew.released, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  Native p(*crew.process);
  crew.body(p, w.index, crew.arg);
  if (crew.hooks->exit != nullptr) crew.hooks->exit(p, crew.hooks->arg);
  return nullptr;
}

}  // namespace

void Native::run_threads(unsigned count, void (*body)(Native&, unsigned, void*),
                         void* arg) {
  const ThreadHooks<Native>& hooks = process_.hooks_;
  process_.multi_threaded_ = true;
  Crew crew{&process_, &hooks, body, arg};
  // From the kernel, since this must not allocate either.
  const std::uint64_t bytes = count * sizeof(Worker);
  const SysValue map = mmap(0, bytes, sys::kProtRead | sys::kProtWrite,
                            sys::kMapPrivate | sys::kMapAnonymous);
  if (!map.ok()) std::abort();
  auto* const workers = std::bit_cast<Worker*>(map.value);
  for (unsigned i = 0; i < count; ++i) {
    workers[i].crew = &crew;
    workers[i].index = i;
    if (hooks.create != nullptr) workers[i].block = hooks.create(*this, hooks.arg);
    if (pthread_create(&workers[i].thread, nullptr, run_worker, &workers[i]) != 0)
      std::abort();
  }
  crew.released.store(1, std::memory_order_release);
  syscall(SYS_futex, &crew.released, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  for (unsigned i = 0; i < count; ++i) {
    pthread_join(workers[i].thread, nullptr);
    if (hooks.release != nullptr) hooks.release(*this, workers[i].block, hooks.arg);
  }
  munmap(map.value, bytes);
}

// The child's only thread is the caller's, with the same platform object.
SysValue Native::run_child(int (*child)(Native&, void*), void (*parent)(Native&, void*),
                           void* arg) {
  const pid_t pid = ::fork();
  const int error = pid < 0 ? errno : 0;
  if (pid == 0) _exit(child(*this, arg));
  parent(*this, arg);
  if (error != 0) return {0, error};
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return {0, errno};
  const int code =
      WIFSIGNALED(status) ? sys::kStatusOfSignal + WTERMSIG(status) : WEXITSTATUS(status);
  return {static_cast<Addr>(code), 0};
}

}  // namespace faultline::alloc
