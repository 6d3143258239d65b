// SPDX-License-Identifier: Apache-2.0
//
// A small operating system for tests: mappings in a map, top-down placement, a break, and a
// check on each access.  It answers as Linux does where an allocator can see it, and can be
// told to refuse.
//
// A ToyThread is one thread's view of a ToyProcess; a test plays several threads from one
// by calling through several views, so that any interleaving can be written down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "allocator/platform.h"
#include "allocator/platform/window.h"

namespace faultline::alloc::toy {

struct ToyLock {
  explicit ToyLock(const char*) {}
  bool held = false;
};

class ToyThread;

class ToyProcess {
 public:
  explicit ToyProcess(PlatformFacts facts = {}, Addr brk_start = 0x4c7000)
      : mmap_top(0x7fff'f7ff'0000),
        facts_(facts),
        window_(),
        brk_start_(pages(brk_start)),
        brk_(brk_start_) {}

  std::uint64_t largest_map = UINT64_MAX;  // a larger mmap is refused
  std::uint64_t largest_brk = UINT64_MAX;  // as is a break farther from its start
  bool hugetlb_pool = false;               // MAP_HUGETLB has pages
  bool multi_threaded = false;
  Addr mmap_top;
  std::uint64_t faults = 0;  // first touches of a page
  bool has_vrange = false;

  [[nodiscard]] Addr brk_start() const { return brk_start_; }
  [[nodiscard]] std::size_t mappings() const { return maps_.size(); }
  [[nodiscard]] std::uint64_t resident_pages() const { return present_.size(); }

 private:
  friend class ToyThread;
  struct Map {
    Addr end;
    unsigned prot;
  };

  // Makes `at` a boundary of mappings.
  void split(Addr at) {
    auto m = maps_.upper_bound(at);
    if (m == maps_.begin()) return;
    --m;
    if (m->first >= at || m->second.end <= at) return;
    maps_[at] = {m->second.end, m->second.prot};
    m->second.end = at;
  }
  void drop_pages(Addr start, Addr end) {
    present_.erase(present_.lower_bound(start), present_.lower_bound(end));
    window_.discard(start, end);
  }
  void unmap(Addr start, Addr end) {
    split(start);
    split(end);
    maps_.erase(maps_.lower_bound(start), maps_.lower_bound(end));
    drop_pages(start, end);
  }
  [[nodiscard]] bool is_free(Addr start, Addr end) const {
    auto m = maps_.lower_bound(end);
    return m == maps_.begin() || std::prev(m)->second.end <= start;
  }
  // The highest gap below mmap_top that is large enough.
  [[nodiscard]] Addr place(std::uint64_t bytes) const {
    Addr ceiling = mmap_top;
    for (auto m = maps_.rbegin(); m != maps_.rend(); ++m) {
      if (m->second.end <= ceiling && ceiling - m->second.end >= bytes) break;
      ceiling = std::min(ceiling, m->first);
    }
    return ceiling - bytes;
  }
  [[nodiscard]] std::uint64_t pages(std::uint64_t bytes) const {
    return (bytes + facts_.page_size - 1) & ~(facts_.page_size - 1);
  }
  void access(Addr at, bool write) {
    const Addr page = at & ~(facts_.page_size - 1);
    if (storage_start_ <= at && at < storage_start_ + storage_bytes_) {
      window_.back(at);
      return;
    }
    auto m = maps_.upper_bound(at);
    const bool mapped = m != maps_.begin() && std::prev(m)->second.end > at;
    const unsigned need = write ? sys::kProtWrite : sys::kProtRead;
    if (!mapped || (std::prev(m)->second.prot & need) == 0) {
      std::fprintf(stderr, "SIGSEGV at %#llx\n", static_cast<unsigned long long>(at));
      std::abort();
    }
    if (volatile_.contains(page)) {
      std::fprintf(stderr, "volatile memory touched at %#llx\n",
                   static_cast<unsigned long long>(at));
      std::abort();
    }
    if (present_.insert(page).second) ++faults;
    for (Addr piece = page; piece < page + facts_.page_size; piece += Window::kPiece)
      window_.back(piece);
  }

  PlatformFacts facts_;
  Window window_;
  Addr brk_start_, brk_;
  std::map<Addr, Map> maps_;
  std::set<Addr> present_, volatile_;
  static constexpr Addr storage_start_ = 0x10'0000;
  static constexpr std::uint64_t storage_bytes_ = 0x10'0000;
  std::uint64_t storage_used_ = 0;
  std::map<Addr, ToyLock> locks_;
  ThreadHooks<ToyThread> hooks_;
};

class ToyThread {
 public:
  using Lock = ToyLock;
  struct Frame {
    Frame(ToyThread&, const Place&) {}
  };
  explicit ToyThread(ToyProcess& process) : os(process) {}
  ToyThread(const ToyThread&) = delete;

  [[nodiscard]] const PlatformFacts& facts() const { return os.facts_; }

  SysValue mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags) {
    const std::uint64_t bytes = os.pages(length);
    if (length == 0) return {0, sys::kEINVAL};
    if (bytes > os.largest_map || bytes < length || bytes > os.mmap_top)
      return {0, sys::kENOMEM};
    if ((flags & sys::kMapHugetlb) != 0 && !os.hugetlb_pool) return {0, sys::kENOMEM};
    Addr at = hint;
    if ((flags & sys::kMapFixed) != 0)
      os.unmap(at, at + bytes);
    else if (hint == 0 || !os.is_free(hint, hint + bytes))
      at = os.place(bytes);
    os.maps_[at] = {at + bytes, prot};
    return {at, 0};
  }
  int munmap(Addr start, std::uint64_t length) {
    if (start % os.facts_.page_size != 0 || length == 0) return sys::kEINVAL;
    os.unmap(start, start + os.pages(length));
    return 0;
  }
  int mprotect(Addr start, std::uint64_t length, unsigned prot) {
    if (start % os.facts_.page_size != 0) return sys::kEINVAL;
    const Addr end = start + os.pages(length);
    os.split(start);
    os.split(end);
    Addr at = start;
    for (auto m = os.maps_.lower_bound(start); m != os.maps_.end() && m->first < end; ++m) {
      if (m->first != at) return sys::kENOMEM;
      m->second.prot = prot;
      at = m->second.end;
    }
    return at == end ? 0 : sys::kENOMEM;
  }
  int madvise(Addr start, std::uint64_t length, int advice) {
    if (start % os.facts_.page_size != 0) return sys::kEINVAL;
    if (advice == sys::kMadvDontneed) os.drop_pages(start, start + os.pages(length));
    return 0;
  }
  // As without the patches.
  // Pages are marked and un-marked; who touches a marked one ends the program, as if it had
  // been purged.
  SysValue vrange(Addr start, std::uint64_t length, int mode, Addr) {
    if (!os.has_vrange) return {0, sys::kENOSYS};
    if (start % os.facts_.page_size != 0 || length < os.facts_.page_size)
      return {0, sys::kEINVAL};
    for (Addr at = start; at + os.facts_.page_size <= start + length;
         at += os.facts_.page_size) {
      if (mode == sys::kVrangeVolatile)
        os.volatile_.insert(at);
      else
        os.volatile_.erase(at);
    }
    return {0, 0};
  }
  bool set_bus_handler(const BusHandler<ToyThread>&) { return false; }
  SysValue mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                  unsigned flags) {
    const std::uint64_t old_bytes = os.pages(old_length);
    const std::uint64_t bytes = os.pages(length);
    if (bytes <= old_bytes) {
      if (bytes < old_bytes) os.unmap(start + bytes, start + old_bytes);
      return {start, 0};
    }
    if (bytes > os.largest_map) return {0, sys::kENOMEM};
    const unsigned prot = std::prev(os.maps_.upper_bound(start))->second.prot;
    if (os.is_free(start + old_bytes, start + bytes)) {
      os.maps_[start + old_bytes] = {start + bytes, prot};
      return {start, 0};
    }
    if ((flags & sys::kMremapMaymove) == 0) return {0, sys::kENOMEM};
    const Addr to = os.place(bytes);
    os.maps_[to] = {to + bytes, prot};
    for (Addr page = start; page < start + old_bytes; page += os.facts_.page_size)
      if (os.present_.erase(page) != 0) os.present_.insert(page - start + to);
    os.window_.move(start, to, old_bytes);
    os.unmap(start, start + old_bytes);
    return {to, 0};
  }
  SysValue sbrk(std::int64_t delta) {
    const Addr old = os.brk_;
    const Addr now = old + static_cast<std::uint64_t>(delta);
    if (delta > 0 && (now < old || now - os.brk_start_ > os.largest_brk))
      return {0, sys::kENOMEM};
    const Addr old_end = os.pages(old);
    const Addr end = os.pages(now);
    if (end > old_end && !os.is_free(old_end, end)) return {0, sys::kENOMEM};
    if (end > old_end) os.maps_[old_end] = {end, sys::kProtRead | sys::kProtWrite};
    if (end < old_end) os.unmap(end, old_end);
    os.brk_ = now;
    return {old, 0};
  }
  std::uint64_t now_ns = 0;  // the test moves it
  std::uint64_t monotonic_ns() { return now_ns; }
  void usleep(std::uint64_t) {}
  std::uint64_t random_key() { return 0x0123'4567'89ab'cdef; }

  template <typename T>
  [[nodiscard]] T load(Addr at) {
    os.access(at, false);
    T v;
    std::memcpy(&v, os.window_.host(at), sizeof v);
    return v;
  }
  template <typename T>
  void store(Addr at, T v) {
    os.access(at, true);
    std::memcpy(os.window_.host(at), &v, sizeof v);
  }
  void touch(Addr start, std::uint64_t length, Touch kind) {
    for (Addr at = start; at < start + length;
         at = (at & ~(os.facts_.page_size - 1)) + os.facts_.page_size)
      os.access(at, kind == Touch::kWrite);
  }
  void set(Addr to, std::uint8_t byte, std::uint64_t n) {
    while (n != 0) {
      const std::uint64_t part = std::min(n, room_in_piece(to));
      os.access(to, true);
      std::memset(os.window_.host(to), byte, part);
      to += part;
      n -= part;
    }
  }
  void copy(Addr to, Addr from, std::uint64_t n) {
    while (n != 0) {
      const std::uint64_t part = std::min({n, room_in_piece(to), room_in_piece(from)});
      os.access(from, false);
      os.access(to, true);
      std::memcpy(os.window_.host(to), os.window_.host(from), part);
      to += part;
      from += part;
      n -= part;
    }
  }
  void cycles(std::uint64_t) {}

  std::uint64_t atomic_load(Addr at) { return load<std::uint64_t>(at); }
  void atomic_store(Addr at, std::uint64_t v) { store(at, v); }
  std::uint64_t atomic_add(Addr at, std::uint64_t n) {
    const auto old = load<std::uint64_t>(at);
    store(at, old + n);
    return old;
  }
  std::uint64_t atomic_exchange(Addr at, std::uint64_t v) {
    const auto old = load<std::uint64_t>(at);
    store(at, v);
    return old;
  }
  bool compare_exchange(Addr at, std::uint64_t expected, std::uint64_t desired) {
    if (load<std::uint64_t>(at) != expected) return false;
    store(at, desired);
    return true;
  }

  // One thread plays them all: a lock that is held can never be waited for.
  void lock(Lock& lock) {
    if (!try_lock(lock)) {
      std::fputs("deadlock\n", stderr);
      std::abort();
    }
  }
  bool try_lock(Lock& lock) {
    if (lock.held) return false;
    lock.held = true;
    return true;
  }
  void unlock(Lock& lock) {
    if (!lock.held) std::abort();
    lock.held = false;
  }
  void reset_lock(Lock& lock) { lock.held = false; }
  Lock& lock_at(Addr at, const char* name) {
    return os.locks_.try_emplace(at, name).first->second;
  }

  ThreadWords& thread_words() { return words_; }
  [[nodiscard]] bool multi_threaded() const { return os.multi_threaded; }
  Addr static_storage(std::uint64_t n) {
    const Addr at = ToyProcess::storage_start_ + os.storage_used_;
    os.storage_used_ += (n + 63) & ~std::uint64_t{63};
    return at;
  }
  void set_thread_hooks(const ThreadHooks<ToyThread>& hooks) { os.hooks_ = hooks; }

  ToyProcess& os;

 private:
  [[nodiscard]] static std::uint64_t room_in_piece(Addr at) {
    return Window::kPiece - (at & (Window::kPiece - 1));
  }
  ThreadWords words_;
};

static_assert(Platform<ToyThread>);

}  // namespace faultline::alloc::toy
