// SPDX-License-Identifier: Apache-2.0
//
// A platform that writes down each system call made through it and passes everything on:
// what a test holds against another world's calls or against strace.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "allocator/platform.h"

namespace faultline::alloc {

enum class SysName : std::uint8_t {
  kMmap,
  kMunmap,
  kMprotect,
  kMadvise,
  kMremap,
  kSbrk,
  kGetrandom,
  kVrange
};

struct SysCall {
  SysName name{};
  Addr addr = 0;
  std::uint64_t size = 0;
  std::uint64_t extra =
      0;  // mmap, mprotect: protection; madvise: advice; vrange: mode; mremap: new size
  unsigned flags = 0;
  Addr result = 0;
  int error = 0;
};

// Holds a fixed number of calls, so that recording doesn't allocate; the rest is only
// counted.
class SysLog {
 public:
  explicit SysLog(std::size_t room = 1 << 16) : calls_(room) {}
  void add(const SysCall& call) {
    const std::size_t i = used_.fetch_add(1, std::memory_order_relaxed);
    if (i < calls_.size()) calls_[i] = call;
  }
  void clear() { used_ = 0; }
  [[nodiscard]] std::size_t size() const { return std::min(used_.load(), calls_.size()); }
  [[nodiscard]] bool overflowed() const { return used_.load() > calls_.size(); }
  [[nodiscard]] const SysCall& operator[](std::size_t i) const { return calls_[i]; }
  [[nodiscard]] std::size_t count(SysName name, bool failed = false) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < size(); ++i)
      n += calls_[i].name == name && (calls_[i].error != 0) == failed;
    return n;
  }

 private:
  std::vector<SysCall> calls_;
  std::atomic<std::size_t> used_ = 0;
};

template <typename P>
class Recording {
 public:
  using Lock = typename P::Lock;
  struct Frame : P::Frame {
    Frame(Recording& r, const Place& place) : P::Frame(r.p_, place) {}
  };

  Recording(P& p, SysLog& log) : p_(p), log_(log) {}

  SysValue mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags) {
    const SysValue r = p_.mmap(hint, length, prot, flags);
    log_.add({SysName::kMmap, hint, length, prot, flags, r.value, r.error});
    return r;
  }
  int munmap(Addr start, std::uint64_t length) {
    const int error = p_.munmap(start, length);
    log_.add({SysName::kMunmap, start, length, 0, 0, 0, error});
    return error;
  }
  int mprotect(Addr start, std::uint64_t length, unsigned prot) {
    const int error = p_.mprotect(start, length, prot);
    log_.add({SysName::kMprotect, start, length, prot, 0, 0, error});
    return error;
  }
  int madvise(Addr start, std::uint64_t length, int advice) {
    const int error = p_.madvise(start, length, advice);
    log_.add({SysName::kMadvise, start, length, static_cast<std::uint64_t>(advice), 0, 0,
              error});
    return error;
  }
  SysValue mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                  unsigned flags) {
    const SysValue r = p_.mremap(start, old_length, length, flags);
    log_.add({SysName::kMremap, start, old_length, length, flags, r.value, r.error});
    return r;
  }
  SysValue vrange(Addr start, std::uint64_t length, int mode, Addr fourth) {
    const SysValue r = p_.vrange(start, length, mode, fourth);
    log_.add({SysName::kVrange, start, length, static_cast<std::uint64_t>(mode), 0, r.value,
              r.error});
    return r;
  }
  // As with the thread hooks: the registering object must outlive the threads.
  bool set_bus_handler(const BusHandler<Recording>& handler) {
    bus_ = handler;
    BusHandler<P> inner;
    if (handler.recover != nullptr)
      inner.recover = [](P& p, Addr at, void* self) {
        auto& r = *static_cast<Recording*>(self);
        Recording here(p, r.log_);
        return r.bus_.recover(here, at, r.bus_.arg);
      };
    inner.arg = this;
    return p_.set_bus_handler(inner);
  }
  // Only calls that enter the kernel: sbrk(0) does so once at most and is left out.
  SysValue sbrk(std::int64_t delta) {
    const SysValue r = p_.sbrk(delta);
    if (delta != 0)
      log_.add(
          {SysName::kSbrk, 0, static_cast<std::uint64_t>(delta), 0, 0, r.value, r.error});
    return r;
  }
  std::uint64_t random_key() {
    log_.add({SysName::kGetrandom, 0, 8, 0, 0, 0, 0});
    return p_.random_key();
  }

  [[nodiscard]] const PlatformFacts& facts() const { return p_.facts(); }
  [[nodiscard]] std::uint64_t monotonic_ns() { return p_.monotonic_ns(); }
  void usleep(std::uint64_t us) { p_.usleep(us); }
  template <typename T>
  [[nodiscard]] T load(Addr at) const {
    return p_.template load<T>(at);
  }
  template <typename T>
  void store(Addr at, T v) {
    p_.template store<T>(at, v);
  }
  void touch(Addr a, std::uint64_t n, Touch kind) { p_.touch(a, n, kind); }
  void set(Addr to, std::uint8_t byte, std::uint64_t n) { p_.set(to, byte, n); }
  void copy(Addr to, Addr from, std::uint64_t n) { p_.copy(to, from, n); }
  void cycles(std::uint64_t n) { p_.cycles(n); }
  std::uint64_t atomic_load(Addr a) { return p_.atomic_load(a); }
  void atomic_store(Addr a, std::uint64_t v) { p_.atomic_store(a, v); }
  std::uint64_t atomic_add(Addr a, std::uint64_t n) { return p_.atomic_add(a, n); }
  std::uint64_t atomic_exchange(Addr a, std::uint64_t v) {
    return p_.atomic_exchange(a, v);
  }
  bool compare_exchange(Addr a, std::uint64_t e, std::uint64_t d) {
    return p_.compare_exchange(a, e, d);
  }
  void lock(Lock& l) { p_.lock(l); }
  bool try_lock(Lock& l) { return p_.try_lock(l); }
  void unlock(Lock& l) { p_.unlock(l); }
  Lock& lock_at(Addr a, const char* name) { return p_.lock_at(a, name); }
  void reset_lock(Lock& l) { p_.reset_lock(l); }
  ThreadWords& thread_words() { return p_.thread_words(); }
  [[nodiscard]] bool multi_threaded() const { return p_.multi_threaded(); }
  Addr static_storage(std::uint64_t n) { return p_.static_storage(n); }

  // The hooks get a recording platform, too.  The registering object must outlive the
  // threads.
  void set_thread_hooks(const ThreadHooks<Recording>& hooks) {
    hooks_ = hooks;
    ThreadHooks<P> inner;
    inner.create = [](P& p, void* self) {
      auto& r = *static_cast<Recording*>(self);
      Recording here(p, r.log_);
      return r.hooks_.create != nullptr ? r.hooks_.create(here, r.hooks_.arg) : 0;
    };
    inner.exit = [](P& p, void* self) {
      auto& r = *static_cast<Recording*>(self);
      Recording here(p, r.log_);
      if (r.hooks_.exit != nullptr) r.hooks_.exit(here, r.hooks_.arg);
    };
    inner.release = [](P& p, Addr block, void* self) {
      auto& r = *static_cast<Recording*>(self);
      Recording here(p, r.log_);
      if (r.hooks_.release != nullptr) r.hooks_.release(here, block, r.hooks_.arg);
    };
    inner.arg = this;
    p_.set_thread_hooks(inner);
  }

  void run_threads(unsigned count, void (*body)(Recording&, unsigned, void*), void* arg) {
    struct Call {
      void (*body)(Recording&, unsigned, void*);
      void* arg;
      SysLog& log;
    } call{body, arg, log_};
    p_.run_threads(
        count,
        [](P& p, unsigned index, void* c) {
          auto& inner = *static_cast<Call*>(c);
          Recording here(p, inner.log);
          inner.body(here, index, inner.arg);
        },
        &call);
  }

  // The child's calls are recorded where it shares host memory with the parent.
  SysValue run_child(int (*child)(Recording&, void*), void (*parent)(Recording&, void*),
                     void* arg) {
    struct Call {
      int (*child)(Recording&, void*);
      void (*parent)(Recording&, void*);
      void* arg;
      Recording& here;
    } call{child, parent, arg, *this};
    return p_.run_child(
        [](P& p, void* c) {
          auto& inner = *static_cast<Call*>(c);
          Recording there(p, inner.here.log_);
          return inner.child(there, inner.arg);
        },
        [](P&, void* c) {
          auto& inner = *static_cast<Call*>(c);
          inner.parent(inner.here, inner.arg);
        },
        &call);
  }

 private:
  P& p_;
  SysLog& log_;
  ThreadHooks<Recording> hooks_;
  BusHandler<Recording> bus_;
};

}  // namespace faultline::alloc
