// SPDX-License-Identifier: Apache-2.0
//
// The real world: raw system calls, plain loads and stores, futexes.
//
// A NativeProcess holds what a process has once; a Native is a thread's view of it and
// costs nothing to use.  Nothing here allocates, so that an allocator built on it can serve
// the whole process.
#pragma once

#include <sys/single_threaded.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "allocator/platform.h"

namespace faultline::alloc {

class Native;

class NativeProcess {
 public:
  // Whose threads?  Those of run_threads, or also those that anyone in the process starts,
  // for an allocator that serves all of it.
  enum class Threads : std::uint8_t { kOwn, kAll };
  explicit NativeProcess(Threads threads = Threads::kOwn);
  NativeProcess(const NativeProcess&) = delete;
  NativeProcess& operator=(const NativeProcess&) = delete;

 private:
  friend class Native;
  PlatformFacts facts_;
  const bool all_threads_;
  std::atomic<bool> multi_threaded_ = false;
  ThreadHooks<Native> hooks_;
  std::atomic<std::size_t> storage_used_ = 0;
  alignas(64) std::array<std::byte, 64 << 10> storage_{};
};

// 0 free, 1 taken, 2 taken and others may sleep for it.
// After the usual three-state futex mutex (U. Drepper, "Futexes Are Tricky", 2011).
class FutexLock {
 public:
  constexpr explicit FutexLock(const char* /*name*/) {}
  void lock() {
    std::uint32_t free = 0;
    if (!state_.compare_exchange_strong(free, 1, std::memory_order_acquire)) lock_slow();
  }
  bool try_lock() {
    std::uint32_t free = 0;
    return state_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == 2) wake_one();
  }
  void reset() { state_.store(0, std::memory_order_relaxed); }

 private:
  void lock_slow();
  void wake_one();
  std::atomic<std::uint32_t> state_ = 0;
};

class Native {
 public:
  using Lock = FutexLock;
  struct Frame {
    Frame(Native&, const Place&) {}
  };

  explicit Native(NativeProcess& process) : process_(process) {}
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  [[nodiscard]] const PlatformFacts& facts() const { return process_.facts_; }

  SysValue mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags);
  int munmap(Addr start, std::uint64_t length);
  int mprotect(Addr start, std::uint64_t length, unsigned prot);
  int madvise(Addr start, std::uint64_t length, int advice);
  SysValue mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                  unsigned flags);
  // No kernel was ever released with the call.
  SysValue vrange(Addr, std::uint64_t, int, Addr) { return {0, sys::kENOSYS}; }
  bool set_bus_handler(const BusHandler<Native>&) { return false; }
  SysValue sbrk(std::int64_t delta);
  [[nodiscard]] std::uint64_t monotonic_ns();
  void usleep(std::uint64_t microseconds);
  std::uint64_t random_key();

  template <typename T>
  [[nodiscard]] T load(Addr at) const {
    T v;
    std::memcpy(&v, pointer(at), sizeof v);
    return v;
  }
  template <typename T>
  void store(Addr at, T v) {
    std::memcpy(pointer(at), &v, sizeof v);
  }
  void touch(Addr start, std::uint64_t length, Touch kind);
  void set(Addr to, std::uint8_t byte, std::uint64_t n) {
    std::memset(pointer(to), byte, n);
  }
  void copy(Addr to, Addr from, std::uint64_t n) {
    std::memcpy(pointer(to), pointer(from), n);
  }
  void cycles(std::uint64_t) {}

  std::uint64_t atomic_load(Addr at) { return word(at).load(std::memory_order_acquire); }
  void atomic_store(Addr at, std::uint64_t v) {
    word(at).store(v, std::memory_order_release);
  }
  std::uint64_t atomic_add(Addr at, std::uint64_t n) {
    return word(at).fetch_add(n, std::memory_order_relaxed);
  }
  std::uint64_t atomic_exchange(Addr at, std::uint64_t v) {
    return word(at).exchange(v, std::memory_order_acq_rel);
  }
  bool compare_exchange(Addr at, std::uint64_t expected, std::uint64_t desired) {
    return word(at).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
  }

  void lock(Lock& lock) { lock.lock(); }
  bool try_lock(Lock& lock) { return lock.try_lock(); }
  void unlock(Lock& lock) { lock.unlock(); }
  void reset_lock(Lock& lock) { lock.reset(); }
  Lock& lock_at(Addr at, const char* /*name*/) { return *std::bit_cast<Lock*>(at); }

  ThreadWords& thread_words() { return words_; }
  [[nodiscard]] bool multi_threaded() const {
    return process_.multi_threaded_.load(std::memory_order_relaxed) ||
           (process_.all_threads_ && __libc_single_threaded == 0);
  }
  Addr static_storage(std::uint64_t n);
  void set_thread_hooks(const ThreadHooks<Native>& hooks) { process_.hooks_ = hooks; }
  void run_threads(unsigned count, void (*body)(Native&, unsigned, void*), void* arg);
  SysValue run_child(int (*child)(Native&, void*), void (*parent)(Native&, void*),
                     void* arg);

 private:
  static std::byte* pointer(Addr at) { return std::bit_cast<std::byte*>(at); }
  static std::atomic_ref<std::uint64_t> word(Addr at) {
    return std::atomic_ref<std::uint64_t>(*std::bit_cast<std::uint64_t*>(at));
  }

  NativeProcess& process_;
  ThreadWords words_;
};

static_assert(sizeof(FutexLock) == 4);
static_assert(ThreadedPlatform<Native>);

}  // namespace faultline::alloc
