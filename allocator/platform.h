// SPDX-License-Identifier: Apache-2.0
//
// What an allocator or a workload may ask of the world: the one boundary between user code and the
// kernel, real or modelled.  The contract in prose is the comments here; the concept at the end is
// the same for the compiler.  No code over a Platform may ask which world it is in.
//
// General rules.  An address is a plain number (Addr).  A range is usable between the mmap (or brk,
// mprotect) that makes it so and the call that ends it; touching another one ends the program.
// A call that fails changes nothing and says why with Linux's errno.  Results of system calls are
// those of Linux's raw system calls.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace faultline::alloc {

using Addr = std::uint64_t;

// A system call's answer: a value, or errno in `error` (0 is success).
struct SysValue {
  Addr value = 0;
  int error = 0;
  [[nodiscard]] bool ok() const { return error == 0; }
};

// Facts of the machine that are known at start-up and don't change.
struct PlatformFacts {
  std::uint64_t page_size = 4096;
  std::uint64_t thp_size = 0;          // hpage_pmd_size; 0: no THP
  unsigned cpus = 1;                   // online
  char thp_mode = 'n';                 // 'a'lways, 'm'advise, 'n'ever: .../transparent_hugepage/enabled
  std::uint64_t hugetlb_default = 0;   // Hugepagesize of /proc/meminfo; 0: none
  unsigned overcommit_memory = 0;      // /proc/sys/vm/overcommit_memory
  unsigned address_bits = 64;
};

enum class Touch : std::uint8_t { kRead, kWrite };

// A function of the program (malloc, _int_malloc, allocate_free …) as reports shall name it.
// Identity is the object's address: one `inline constexpr Place` a name.
struct Place {
  const char* name;
};

// Values of PROT_, MAP_, MADV_ and MREMAP_ are Linux's (asm-generic).
namespace sys {
inline constexpr unsigned kProtNone = 0, kProtRead = 1, kProtWrite = 2, kProtExec = 4;
inline constexpr unsigned kMapShared = 0x01, kMapPrivate = 0x02, kMapFixed = 0x10, kMapAnonymous = 0x20,
                          kMapNoreserve = 0x4000, kMapPopulate = 0x8000, kMapStack = 0x20000,
                          kMapHugetlb = 0x40000;
inline constexpr unsigned kMapHugeShift = 26;
inline constexpr int kMadvNormal = 0, kMadvDontneed = 4, kMadvFree = 8, kMadvHugepage = 14, kMadvNohugepage = 15;
inline constexpr unsigned kMremapMaymove = 1;
inline constexpr int kENOMEM = 12, kEINVAL = 22;
}  // namespace sys

template <typename P>
concept Platform = requires(P p, Addr a, std::uint64_t n, unsigned u, int i, Touch kind,
                            typename P::Lock& lock, void* ptr) {
  { p.facts() } -> std::same_as<const PlatformFacts&>;

  // System calls.  mmap is of anonymous private memory; `flags` as Linux's.  brk is the raw call: the
  // new break, or the old one if it can't be moved; brk(0) asks.
  { p.mmap(a, n, u, u) } -> std::same_as<SysValue>;
  { p.munmap(a, n) } -> std::same_as<int>;              // 0 or errno
  { p.mprotect(a, n, u) } -> std::same_as<int>;
  { p.madvise(a, n, i) } -> std::same_as<int>;
  { p.mremap(a, n, n, u) } -> std::same_as<SysValue>;
  { p.brk(a) } -> std::same_as<Addr>;
  { p.usleep(n) };                                      // microseconds; 0 is a real sleep
  { p.random_key() } -> std::same_as<std::uint64_t>;    // getrandom of 8 bytes, GRND_NONBLOCK

  // Memory.  load and store are of trivially copyable values that don't cross a page; touch accesses
  // every page of the range without moving data; set and copy move bytes.
  { p.template load<std::uint64_t>(a) } -> std::same_as<std::uint64_t>;
  { p.template store<std::uint64_t>(a, n) };
  { p.touch(a, n, kind) };
  { p.set(a, std::uint8_t{}, n) };                      // memset
  { p.copy(a, a, n) };                                  // memcpy(to, from, n)

  // P::Frame(p, place): says that the thread is in that function while the object lives.  Frames
  // nest; nothing natively.  Put one where a person would want to see the function in a profile.
  requires std::constructible_from<typename P::Frame, P&, const Place&>;

  // Pure computation of `n` instructions' worth of cycles; nothing natively.
  { p.cycles(n) };

  // A futex lock (cmpxchg fast path, sleeps when contended).  default-constructible, not movable.
  { p.lock(lock) };
  { p.try_lock(lock) } -> std::same_as<bool>;
  { p.unlock(lock) };

  // One pointer a thread, null at first.
  { p.thread_slot() } -> std::same_as<void*&>;
  // The process has, or once had, a second thread (SINGLE_THREAD_P is false).
  { p.multi_threaded() } -> std::same_as<bool>;
  // Zeroed memory for what glibc keeps in .data/.bss (the main arena): used through load and store
  // like any other, but it is there from the start and never faults.  16-aligned, never freed.
  { p.static_storage(n) } -> std::same_as<Addr>;
};

// A workload also starts threads: run `count` bodies as threads of the process and join them.
template <typename P>
concept ThreadedPlatform = Platform<P> && requires(P p, unsigned count, void (*body)(P&, unsigned, void*), void* arg) {
  { p.run_threads(count, body, arg) };                  // all released together
};

}  // namespace faultline::alloc
