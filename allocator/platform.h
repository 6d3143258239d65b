// SPDX-License-Identifier: Apache-2.0
//
// What an allocator or a workload may ask of the world: the one boundary between user code
// and the kernel, real or modelled.  The contract in prose is the comments here; the
// concept at the end is the same for the compiler.  No code over a Platform may ask which
// world it is in.
//
// A platform object is one thread's view of its process: each call gets that of the calling
// thread.
//
// General rules.  An address is a plain number (Addr).  A range is usable between the mmap
// (or brk, mprotect) that makes it so and the call that ends it; touching another one ends
// the program. A call that fails changes nothing and says why with Linux's errno.  Results
// of system calls are those of Linux's raw system calls.
#pragma once

#include <array>
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

// What a libc is built for.
enum class Architecture : std::uint8_t {
  kAArch64,
  kLoongArch,
  kMips,
  kPowerPc,
  kRiscV,
  kS390,
  kSparc,
  kX86
};

// Facts of the machine that are known at start-up and don't change.
struct PlatformFacts {
  Architecture architecture = Architecture::kX86;
  std::uint64_t page_size = 4096;
  std::uint64_t thp_size = 0;  // hpage_pmd_size; 0: no THP
  unsigned cpus = 1;           // online
  char thp_mode = 'n';  // 'a'lways, 'm'advise, 'n'ever: .../transparent_hugepage/enabled
  std::uint64_t hugetlb_default = 0;  // Hugepagesize of /proc/meminfo; 0: none
  // The sizes under /sys/kernel/mm/hugepages; unused ones are 0.
  std::array<std::uint64_t, 8> hugetlb_sizes{};
  unsigned overcommit_memory = 0;  // /proc/sys/vm/overcommit_memory
  // Which version of the volatile-range patches the kernel has; 0: none, as every released
  // one.  The answer of vrange changed with version 8.
  unsigned vrange_version = 0;
  unsigned address_bits = 64;
};

enum class Touch : std::uint8_t { kRead, kWrite };

// A function of the program (malloc, _int_malloc, allocate_free …) as reports shall name
// it. Identity is the object's address: one `inline constexpr Place` a name.
struct Place {
  const char* name;
};

// What an allocator keeps for each thread (what a libc keeps in TLS): there from the
// thread's start, zero at first, never faults.  The meaning of the words is the
// allocator's.
struct ThreadWords {
  std::uint64_t word[4] = {};
};

// What happens in the allocator when a thread comes and goes.
template <typename P>
struct ThreadHooks {
  // In the creating thread, before the new one starts: memory that the libc needs for it.
  Addr (*create)(P& creator, void* arg) = nullptr;
  // In the thread itself, as the last thing that it does.
  void (*exit)(P& thread, void* arg) = nullptr;
  // In a thread that joined it, if its stack is not kept for a later thread: what `create`
  // gave.
  void (*release)(P& joiner, Addr block, void* arg) = nullptr;
  void* arg = nullptr;
};

// What glibc asks of an allocator for a thread: pthread_create allocates the new thread's
// table of TLS blocks, 1 module + 14 spare + 2 of 16 bytes.
template <typename P, typename Allocator>
[[nodiscard]] ThreadHooks<P> thread_hooks_of(Allocator& allocator) {
  constexpr std::uint64_t kDtvEntries = 17, kDtvEntryBytes = 16;
  return {.create =
              [](P& creator, void* self) {
                return static_cast<Allocator*>(self)->calloc(creator, kDtvEntries,
                                                             kDtvEntryBytes);
              },
          .exit = [](P& thread,
                     void* self) { static_cast<Allocator*>(self)->thread_exit(thread); },
          .release = [](P& joiner, Addr block,
                        void* self) { static_cast<Allocator*>(self)->free(joiner, block); },
          .arg = &allocator};
}

// What a program does about SIGBUS: makes good what was lost at that address and says true
// (the access is tried again), or says false (the program ends).  It runs in the thread
// whose access it was.
template <typename P>
struct BusHandler {
  bool (*recover)(P& thread, Addr at, void* arg) = nullptr;
  void* arg = nullptr;
};

// Values of PROT_, MAP_, MADV_ and MREMAP_ are Linux's (asm-generic).
namespace sys {
inline constexpr unsigned kProtNone = 0, kProtRead = 1, kProtWrite = 2, kProtExec = 4;
inline constexpr unsigned kMapShared = 0x01, kMapPrivate = 0x02, kMapFixed = 0x10,
                          kMapAnonymous = 0x20, kMapNoreserve = 0x4000,
                          kMapPopulate = 0x8000, kMapStack = 0x20000, kMapHugetlb = 0x40000;
inline constexpr unsigned kMapHugeShift = 26;
inline constexpr int kMadvNormal = 0, kMadvDontneed = 4, kMadvFree = 8, kMadvHugepage = 14,
                     kMadvNohugepage = 15;
inline constexpr unsigned kMremapMaymove = 1;
inline constexpr int kVrangeVolatile = 0, kVrangeNovolatile = 1;
inline constexpr Addr kVrangeFull = 0, kVrangePartial = 1;
inline constexpr int kStatusOfSignal = 128;  // plus its number: how a shell says it
inline constexpr int kENOMEM = 12, kEFAULT = 14, kEINVAL = 22, kENOSYS = 38;
}  // namespace sys

template <typename P>
concept Platform = requires(P p, Addr a, std::uint64_t n, unsigned u, int i, Touch kind,
                            typename P::Lock& lock, const char* name, ThreadHooks<P> hooks,
                            BusHandler<P> bus) {
  { p.facts() } -> std::same_as<const PlatformFacts&>;

  // System calls.  mmap is of anonymous private memory; `flags` as Linux's.
  { p.mmap(a, n, u, u) } -> std::same_as<SysValue>;
  { p.munmap(a, n) } -> std::same_as<int>;  // 0 or errno
  { p.mprotect(a, n, u) } -> std::same_as<int>;
  { p.madvise(a, n, i) } -> std::same_as<int>;
  { p.mremap(a, n, n, u) } -> std::same_as<SysValue>;
  // vrange(start, length, mode, behavior) of the volatile-range patches, v7: 0, or 1 if
  // NOVOLATILE finds that pages were purged; v8 and later: bytes done, and the fourth
  // argument is the address of an int for the purged state, or 0.  ENOSYS without them.
  { p.vrange(a, n, i, a) } -> std::same_as<SysValue>;
  // sigaction(SIGBUS) for the whole process; false: this platform has no such handler.
  { p.set_bus_handler(bus) } -> std::same_as<bool>;
  // libc's sbrk, which the allocator and the rest of the program share: moves the break by
  // so many bytes and answers the old one.  The break is remembered: the kernel is asked
  // where it is only the first time, and sbrk(0) enters it never again.
  { p.sbrk(std::int64_t{}) } -> std::same_as<SysValue>;
  // clock_gettime(CLOCK_MONOTONIC), which doesn't enter the kernel.
  { p.monotonic_ns() } -> std::same_as<std::uint64_t>;
  {p.usleep(n)};                                      // microseconds; 0 is a real sleep
  { p.random_key() } -> std::same_as<std::uint64_t>;  // getrandom of 8 bytes, GRND_NONBLOCK

  // Memory.  load and store are of trivially copyable values that don't cross a page; touch
  // accesses every page of the range without moving data; set and copy move bytes.
  { p.template load<std::uint64_t>(a) } -> std::same_as<std::uint64_t>;
  {p.template store<std::uint64_t>(a, n)};
  {p.touch(a, n, kind)};
  {p.set(a, std::uint8_t{}, n)};  // memset
  {p.copy(a, a, n)};              // memcpy(to, from, n)

  // P::Frame(p, place): says that the thread is in that function while the object lives.
  // Frames nest; nothing natively.  Put one where a person would want to see the function
  // in a profile.
  requires std::constructible_from<typename P::Frame, P&, const Place&>;

  // Pure computation of `n` instructions' worth of cycles; nothing natively.
  {p.cycles(n)};

  // 64-bit words that threads share without a lock.
  { p.atomic_load(a) } -> std::same_as<std::uint64_t>;
  {p.atomic_store(a, n)};
  { p.atomic_add(a, n) } -> std::same_as<std::uint64_t>;  // answers the old value
  { p.atomic_exchange(a, n) } -> std::same_as<std::uint64_t>;
  { p.compare_exchange(a, n, n) } -> std::same_as<bool>;  // (at, expected, desired)

  // A futex lock (cmpxchg fast path, sleeps when contended), with its name in reports; not
  // movable. lock_at is the lock whose futex word (32 bits, zero when free) lies at that
  // address.
  requires std::constructible_from<typename P::Lock, const char*>;
  {p.lock(lock)};
  { p.try_lock(lock) } -> std::same_as<bool>;
  {p.unlock(lock)};
  { p.lock_at(a, name) } -> std::same_as<typename P::Lock&>;
  // In the child of a fork, before anything else: the lock is free, whichever thread of the
  // parent held it.
  {p.reset_lock(lock)};

  { p.thread_words() } -> std::same_as<ThreadWords&>;
  // The process has, or once had, a second thread (SINGLE_THREAD_P is false).
  { p.multi_threaded() } -> std::same_as<bool>;
  // Zeroed memory for what a libc keeps in .data/.bss (the main arena): used through load
  // and store like any other, but it is there from the start and never faults.  16-aligned,
  // never freed.
  { p.static_storage(n) } -> std::same_as<Addr>;
  // What the libc's thread creation asks of the allocator; the last call counts.
  {p.set_thread_hooks(hooks)};
};

// A workload also starts threads and processes.
template <typename P>
concept ThreadedPlatform = Platform<P> &&
    requires(P p, unsigned count, void (*body)(P&, unsigned, void*),
             int (*child)(P&, void*), void (*parent)(P&, void*), void* arg) {
  // Runs `count` bodies as threads of the process and joins them.  Each gets its own
  // thread's platform.
  {p.run_threads(count, body, arg)};  // all released together
  // fork(2) and wait4(2).  child(q, arg) runs in a copy of the process that has the calling
  // thread alone, and its answer, 0 to 255, is the child's exit status; parent(p, arg) runs
  // in the caller at the same time.  The value is the status, as a shell says it: 128 and
  // the signal's number if one killed the child.  If the fork fails, with its errno, only
  // `parent` has run.  Host objects behind `arg` may be shared between the two or copied:
  // both may only read them.
  { p.run_child(child, parent, arg) } -> std::same_as<SysValue>;
};

}  // namespace faultline::alloc
