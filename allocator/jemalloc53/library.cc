// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc53/library.h"

#include <bit>
#include <bitset>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

namespace faultline::alloc::je53 {

#ifdef FAULTLINE_JEMALLOC53

// The library's functions under their names here (link.cmake), and its data of a thread.
extern "C" void* faultline_je_mallocx(std::size_t size, int flags);
extern "C" void faultline_je_dallocx(void* at, int flags);
extern "C" std::size_t faultline_je_xallocx(void* at, std::size_t size, std::size_t extra,
                                            int flags);
extern "C" std::size_t faultline_je_sallocx(const void* at, int flags);
extern "C" std::size_t faultline_je_nallocx(std::size_t size, int flags);
extern "C" int faultline_je_mallctl(const char* name, void* old, std::size_t* old_size,
                                    void* value, std::size_t size);
extern "C" thread_local std::byte faultline_je_tsd[FAULTLINE_JEMALLOC53_TSD];
extern "C" bool
    faultline_je_cache_oblivious;  // opt.cache_oblivious, which MALLOC_CONF hasn't

// What the library calls instead of the C library's.
extern "C" char* faultline_je_getenv(const char* name);
extern "C" long faultline_je_readlink(const char* path, char* buffer, std::size_t size);
extern "C" int faultline_je_clock_gettime(int id, timespec* out);
extern "C" long faultline_je_sysconf(int name);

namespace {

// Off: what writes to user memory (junk, zero), caches that nobody asked for, and
// background threads.
constexpr char kConf[] =
    "narenas:1,tcache:false,oversize_threshold:0,retain:true,"
    "dirty_decay_ms:-1,muzzy_decay_ms:-1,junk:false,zero:false,background_thread:false,"
    "percpu_arena:disabled,hpa:false,thp:default,metadata_thp:disabled,stats_print:false,"
    "prof:false";

thread_local Clock clock;

// The ticker that makes the library look at decay after some calls: {left, average}, where
// the next `left` is drawn with a number that starts from a host address.  It is kept from
// running out; whoever uses the library counts and calls decay() itself.
struct Ticker {
  std::int32_t left, average;
};
constexpr std::int32_t kTicks = 1000;  // ARENA_DECAY_NTICKS_PER_UPDATE
thread_local Ticker* ticker = nullptr;

// A new thread's has its average, less the few calls so far.
Ticker* find_ticker() {
  constexpr std::int32_t kFew = 10;
  Ticker* found = nullptr;
  for (std::size_t at = 0; at + sizeof(Ticker) <= FAULTLINE_JEMALLOC53_TSD;
       at += sizeof(std::int32_t)) {
    auto* const here = reinterpret_cast<Ticker*>(faultline_je_tsd + at);
    if (here->average != kTicks || here->left > kTicks || here->left < kTicks - kFew)
      continue;
    if (found != nullptr) std::abort();  // another library than the one that this is for
    found = here;
  }
  if (found == nullptr) std::abort();
  return found;
}
void keep_ticking() {
  ticker->left = INT32_MAX;
}

constexpr std::uint64_t kWindows = 256, kFirstWindow = std::uint64_t{1} << 44;
std::mutex windows_lock;
std::bitset<kWindows> windows;

template <typename T>
bool control(const char* name, T value) {
  return faultline_je_mallctl(name, nullptr, nullptr, &value, sizeof value) == 0;
}
bool control(const char* name) {
  return faultline_je_mallctl(name, nullptr, nullptr, nullptr, 0) == 0;
}
struct Name {
  Name(unsigned arena, const char* what) {
    std::snprintf(text, sizeof text, "arena.%u.%s", arena, what);
  }
  char text[48];
};

void* pointer(std::uint64_t address) {
  return std::bit_cast<void*>(address);
}

}  // namespace

extern "C" {
// Called once, before anything depends on options.  cache_oblivious places large blocks
// with a number that starts from a host address.
char* faultline_je_getenv(const char* name) {
  static char conf[sizeof kConf];
  faultline_je_cache_oblivious = false;
  if (std::strcmp(name, "MALLOC_CONF") != 0) return nullptr;
  return static_cast<char*>(std::memcpy(conf, kConf, sizeof kConf));
}
long faultline_je_readlink(const char*, char*, std::size_t) {
  return -1;
}
int faultline_je_clock_gettime(int, timespec* out) {
  std::uint64_t now = 0;
  if (clock.left > 0) {
    now = clock.next[0];
    --clock.left;
    std::memmove(clock.next, clock.next + 1, sizeof clock.next - sizeof clock.next[0]);
  }
  constexpr std::uint64_t kSecond = 1'000'000'000;
  out->tv_sec = static_cast<std::time_t>(now / kSecond);
  out->tv_nsec = static_cast<long>(now % kSecond);
  return 0;
}
// The number of CPUs is all that it asks for beside the page size, and it has no use for
// it.
long faultline_je_sysconf(int name) {
  constexpr int kPageSizeName = 30;  // _SC_PAGESIZE
  return name == kPageSizeName ? static_cast<long>(kPage) : 2;
}
}

IdleThread::IdleThread() {
  const int how = flags(0, kNoTcache, 0);
  faultline_je_dallocx(faultline_je_mallocx(1, how), how);
  if (ticker == nullptr) ticker = find_ticker();
  keep_ticking();
}

Context::Context() : bytes_(new std::byte[FAULTLINE_JEMALLOC53_TSD]), clock_(clock) {
  std::memcpy(bytes_.get(), faultline_je_tsd, FAULTLINE_JEMALLOC53_TSD);
}
Context::~Context() = default;
void Context::restore() const {
  std::memcpy(faultline_je_tsd, bytes_.get(), FAULTLINE_JEMALLOC53_TSD);
  clock = clock_;
}

bool create_arena(Hooks* hooks, std::uint64_t now, std::int64_t dirty_decay_ms,
                  std::int64_t muzzy_decay_ms, unsigned& arena) {
  struct {
    Hooks* hooks;
    bool metadata_use_hooks;
  } config = {hooks, false};
  std::size_t size = sizeof arena;
  if (faultline_je_mallctl("experimental.arenas_create_ext", &arena, &size, &config,
                           sizeof config) != 0)
    return false;
  // Once for the beginning of the first epoch, once for the question whether it is over.
  const Clock both{{now, now}, 2};
  clock = both;
  const bool dirty =
      control<std::ptrdiff_t>(Name(arena, "dirty_decay_ms").text, dirty_decay_ms);
  clock = both;
  const bool muzzy =
      control<std::ptrdiff_t>(Name(arena, "muzzy_decay_ms").text, muzzy_decay_ms);
  clock = {};
  return dirty && muzzy;
}
void destroy_arena(unsigned arena) {
  control(Name(arena, "destroy").text);
}
void decay(unsigned arena, const Clock& times) {
  clock = times;
  control(Name(arena, "decay").text);
  clock = {};
}
bool create_tcache(unsigned& tcache) {
  std::size_t size = sizeof tcache;
  return faultline_je_mallctl("tcache.create", &tcache, &size, nullptr, 0) == 0;
}
void destroy_tcache(unsigned tcache) {
  keep_ticking();
  control("tcache.destroy", tcache);
}

// MALLOCX_ARENA, MALLOCX_TCACHE and MALLOCX_LG_ALIGN.
int flags(unsigned arena, int tcache, unsigned lg_alignment) {
  constexpr int kTcacheShift = 8, kArenaShift = 20;
  return static_cast<int>(lg_alignment) | ((tcache + 2) << kTcacheShift) |
         static_cast<int>((arena + 1) << kArenaShift);
}
std::uint64_t allocate(std::uint64_t bytes, int how) {
  keep_ticking();
  return reinterpret_cast<std::uint64_t>(faultline_je_mallocx(bytes, how));
}
void release(std::uint64_t address, int how) {
  keep_ticking();
  faultline_je_dallocx(pointer(address), how);
}
std::uint64_t resize(std::uint64_t address, std::uint64_t bytes, int how) {
  keep_ticking();
  return faultline_je_xallocx(pointer(address), bytes, 0, how);
}
std::uint64_t usable_size(std::uint64_t address) {
  return faultline_je_sallocx(pointer(address), 0);
}
std::uint64_t size_class(std::uint64_t bytes, int how) {
  return faultline_je_nallocx(bytes, how);
}

std::uint64_t take_window() {
  const std::lock_guard guard(windows_lock);
  for (std::uint64_t i = 0; i < kWindows; ++i) {
    if (windows[i]) continue;
    windows[i] = true;
    return kFirstWindow + i * kWindow;
  }
  return 0;
}
void give_window_back(std::uint64_t window) {
  const std::lock_guard guard(windows_lock);
  windows[(window - kFirstWindow) / kWindow] = false;
}

#else

// Nobody comes here: a scenario that names the allocator is refused when it is read.
IdleThread::IdleThread() {
  std::abort();
}
Context::Context() = default;
Context::~Context() = default;
void Context::restore() const {}
bool create_arena(Hooks*, std::uint64_t, std::int64_t, std::int64_t, unsigned&) {
  return false;
}
void destroy_arena(unsigned) {}
void decay(unsigned, const Clock&) {}
bool create_tcache(unsigned&) {
  return false;
}
void destroy_tcache(unsigned) {}
int flags(unsigned, int, unsigned) {
  return 0;
}
std::uint64_t allocate(std::uint64_t, int) {
  return 0;
}
void release(std::uint64_t, int) {}
std::uint64_t resize(std::uint64_t, std::uint64_t, int) {
  return 0;
}
std::uint64_t usable_size(std::uint64_t) {
  return 0;
}
std::uint64_t size_class(std::uint64_t, int) {
  return 0;
}
std::uint64_t take_window() {
  return 0;
}
void give_window_back(std::uint64_t) {}

#endif

}  // namespace faultline::alloc::je53
