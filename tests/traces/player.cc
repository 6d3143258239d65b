// SPDX-License-Identifier: Apache-2.0
//
// player FILE: plays a program of allocator operations on the malloc of the process, the
// libc's or one preloaded, between two system calls getppid() that a tracer can see.
//
// Uses nothing that allocates before the program starts.
#include <fcntl.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
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
  syscall(SYS_getppid);
  main_thread.run(0, g_program.size);
  syscall(SYS_getppid);
  _exit(0);
}
