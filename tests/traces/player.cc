// SPDX-License-Identifier: Apache-2.0
//
// player FILE [WARM CYCLES]: plays a program of allocator operations on the malloc of the
// process, the libc's or one preloaded, between two system calls getppid() that a tracer
// can see.  With numbers: plays it WARM times before and CYCLES times between the calls,
// and prints the minor faults of those and the growth of the resident set since the start
// (KiB).
//
// Uses nothing that allocates before the program starts.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "allocator/platform/native.h"
#include "scenarios/workloads/ops.h"

namespace {

using faultline::alloc::Addr;
using faultline::alloc::Native;
using faultline::alloc::NativeProcess;
using faultline::alloc::Param;
using namespace faultline::workloads;

// malloc's family with the members of Ptmalloc.
struct LibcHeap {
  // The libc's fork does it itself.
  static void fork_lock(Native&) {}
  static void fork_unlock_parent(Native&) {}
  static void fork_unlock_child(Native&) {}
  static Addr malloc(Native&, std::uint64_t n) { return address(::malloc(n)); }
  static Addr calloc(Native&, std::uint64_t count, std::uint64_t each) {
    return address(::calloc(count, each));
  }
  static Addr realloc(Native&, Addr at, std::uint64_t n) {
    return address(::realloc(std::bit_cast<void*>(at), n));
  }
  static Addr memalign(Native&, std::uint64_t alignment, std::uint64_t n) {
    return address(::memalign(alignment, n));
  }
  static void free(Native&, Addr at) { ::free(std::bit_cast<void*>(at)); }
  static bool malloc_trim(Native&, std::uint64_t pad) { return ::malloc_trim(pad) != 0; }
  static int mallopt(Native&, Param param, std::int64_t value) {
    return ::mallopt(static_cast<int>(param), static_cast<int>(value));
  }

 private:
  static Addr address(void* p) { return std::bit_cast<Addr>(p); }
};

std::array<char, 64 << 10> g_text;
OpsProgram g_program;
std::array<OpsBlock, 1 << 16> g_pool;

long minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// A field of /proc/self/smaps_rollup, which is exact (status lags), in KiB.
long rollup(const char* field) {
  std::array<char, 4096> text{};
  const int file = open("/proc/self/smaps_rollup", O_RDONLY);
  const ssize_t got = read(file, text.data(), text.size() - 1);
  close(file);
  const char* const at = got < 0 ? nullptr : std::strstr(text.data(), field);
  return at == nullptr ? -1 : std::atol(at + std::strlen(field));
}

void print_counts(long faults, long kib) {
  std::array<char, 64> line{};
  char* at = std::to_chars(line.data(), line.data() + 20, faults).ptr;
  *at++ = ' ';
  at = std::to_chars(at, at + 20, kib).ptr;
  *at++ = '\n';
  if (write(STDOUT_FILENO, line.data(), static_cast<std::size_t>(at - line.data())) < 0)
    _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) return 2;
  const int file = open(argv[1], O_RDONLY);
  const ssize_t got = read(file, g_text.data(), g_text.size());
  close(file);
  if (got < 0 ||
      read_ops({g_text.data(), static_cast<std::size_t>(got)}, g_program).what != nullptr)
    return 2;
  NativeProcess process;
  Native platform(process);
  LibcHeap heap;
  OpsThread<Native, LibcHeap> main_thread(platform, heap, g_program, g_pool);
  const int warm = argc == 4 ? std::atoi(argv[2]) : 0;
  const int cycles = argc == 4 ? std::atoi(argv[3]) : 1;
  if (argc == 4) g_pool.fill({});  // resident from the start
  const long resident = rollup("Rss:");
  for (int i = 0; i < warm; ++i) main_thread.run(0, g_program.size);
  const long faults = minor_faults();
  syscall(SYS_getppid);
  for (int i = 0; i < cycles; ++i) main_thread.run(0, g_program.size);
  syscall(SYS_getppid);
  if (argc == 4) print_counts(minor_faults() - faults, rollup("Rss:") - resident);
  _exit(0);
}
