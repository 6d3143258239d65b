// SPDX-License-Identifier: Apache-2.0
//
// The real jemalloc 5.3 as a part of this program: the objects of Debian's libjemalloc-dev,
// under names of their own, so that nobody's malloc is replaced.
//
// It keeps its data about memory in memory of the host, and manages addresses that mean
// nothing to it: they are the modelled kernel's, moved into a window.  It never reads or
// writes there.  What it would ask of the host is answered here instead, so that no result
// depends on it: its clock (Clock), MALLOC_CONF and /etc/malloc.conf (fixed options).  It
// never looks at decay by itself unless the time is 0: decay() does.
//
// Whoever uses it calls from one host thread, and may leave a call in the middle of a hook
// (its fiber waits, another one runs) if it swaps Context around that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace faultline::alloc::je53 {

#ifdef FAULTLINE_JEMALLOC53
inline constexpr bool kAvailable = true;
#else
inline constexpr bool kAvailable = false;
#endif
inline constexpr std::string_view kPackage = "libjemalloc-dev";
inline constexpr std::uint64_t kPage = 4096;  // of Debian's build
inline constexpr std::uint64_t kTcacheMax = 32768;

// extent_hooks_t (jemalloc(3)).  True is a refusal.
struct Hooks {
  void* (*alloc)(Hooks*, void* at, std::size_t size, std::size_t alignment, bool* zero,
                 bool* commit, unsigned arena);
  bool (*dalloc)(Hooks*, void*, std::size_t, bool committed, unsigned);
  void (*destroy)(Hooks*, void*, std::size_t, bool committed, unsigned);
  bool (*commit)(Hooks*, void*, std::size_t, std::size_t offset, std::size_t length,
                 unsigned);
  bool (*decommit)(Hooks*, void*, std::size_t, std::size_t offset, std::size_t length,
                   unsigned);
  bool (*purge_lazy)(Hooks*, void*, std::size_t, std::size_t offset, std::size_t length,
                     unsigned);
  bool (*purge_forced)(Hooks*, void*, std::size_t, std::size_t offset, std::size_t length,
                       unsigned);
  bool (*split)(Hooks*, void*, std::size_t, std::size_t a, std::size_t b, bool, unsigned);
  bool (*merge)(Hooks*, void*, std::size_t a_size, void*, std::size_t, bool, unsigned);
};

// What the library's clock says while a call runs: first these, then zero.
struct Clock {
  std::uint64_t next[4] = {};
  unsigned left = 0;
};

// Makes the host thread known to the library.
struct IdleThread {
  IdleThread();
};

// What the library knows of the host thread that it runs on, as it was when this was made.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void restore() const;

 private:
  std::unique_ptr<std::byte[]> bytes_;
  Clock clock_;
};

// Arenas; false is failure.  The clock says `now` meanwhile.  Decay times as jemalloc's.
bool create_arena(Hooks* hooks, std::uint64_t now, std::int64_t dirty_decay_ms,
                  std::int64_t muzzy_decay_ms, unsigned& arena);
void destroy_arena(unsigned arena);
// arena.<i>.decay, at these times for dirty and for muzzy pages (if they decay).
void decay(unsigned arena, const Clock& clock);
bool create_tcache(unsigned& tcache);
void destroy_tcache(unsigned tcache);

// Where and through what: a combination of arena, cache and alignment.
[[nodiscard]] int flags(unsigned arena, int tcache, unsigned lg_alignment);
inline constexpr int kNoTcache = -1;
[[nodiscard]] std::uint64_t allocate(std::uint64_t bytes, int flags);
void release(std::uint64_t address, int flags);
// Tries to make a block that long where it is; its new usable size.
[[nodiscard]] std::uint64_t resize(std::uint64_t address, std::uint64_t bytes, int flags);
[[nodiscard]] std::uint64_t usable_size(std::uint64_t address);
// What a request of that size gets; 0: too much.
[[nodiscard]] std::uint64_t size_class(std::uint64_t bytes, int flags);

// The addresses of one process inside the library, which knows those of all: 128 GiB where
// no host memory lies.  0: there are no more.
inline constexpr std::uint64_t kWindow = std::uint64_t{1} << 37;
[[nodiscard]] std::uint64_t take_window();
void give_window_back(std::uint64_t window);

}  // namespace faultline::alloc::je53
