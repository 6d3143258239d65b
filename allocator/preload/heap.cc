// SPDX-License-Identifier: Apache-2.0
//
// Start-up, threads and forks of the preload library.
//
// Nothing here may allocate: the first call of malloc comes before main, perhaps before
// libc is ready.
#include "allocator/preload/heap.h"

#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

namespace faultline::preload {

constinit __attribute__((tls_model("initial-exec"))) thread_local ThreadSlot t_slot{};
constinit Storage<Heap> g_heap{};
constinit std::array<std::byte, 64 << 10> g_start_up{};

namespace {

using alloc::Native;
using alloc::NativeProcess;

enum class State : int { kNone, kStarting, kReady };
constinit std::atomic<State> g_state{State::kNone};
constinit Storage<NativeProcess> g_process{};
constinit std::atomic<std::size_t> g_start_up_used{0};
pthread_key_t g_key;

// Other destructors of thread-specific data may still free: the thread leaves in the last
// round.
void leave(void* slot) {
  auto& s = *static_cast<ThreadSlot*>(slot);
  constexpr int kRounds = 4;  // PTHREAD_DESTRUCTOR_ITERATIONS
  if (++s.exits < kRounds - 1)
    pthread_setspecific(g_key, slot);
  else
    g_heap.get().thread_exit(s.native.get());
}

void before_fork() {
  heap().fork_lock(here());
}
void after_fork_in_parent() {
  heap().fork_unlock_parent(here());
}
void after_fork_in_child() {
  heap().fork_unlock_child(here());
}

void make_heap() {
  t_slot.starting = true;
  new (g_process.bytes) NativeProcess(NativeProcess::Threads::kAll);
  pthread_key_create(&g_key, leave);
  new (t_slot.native.bytes) Native(g_process.get());
  make_heap_at(g_heap.bytes, t_slot.native.get());
  t_slot.starting = false;
  t_slot.ready = true;
  g_state.store(State::kReady, std::memory_order_release);
  pthread_setspecific(g_key, &t_slot);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void start() {
  State none = State::kNone;
  if (g_state.compare_exchange_strong(none, State::kStarting)) {
    make_heap();
    return;
  }
  while (g_state.load(std::memory_order_acquire) != State::kReady) sched_yield();
}

}  // namespace

void make_ready() {
  const int saved = errno;
  if (g_state.load(std::memory_order_acquire) != State::kReady) start();
  if (!t_slot.ready) {
    new (t_slot.native.bytes) Native(g_process.get());
    t_slot.ready = true;
    pthread_setspecific(g_key, &t_slot);
  }
  errno = saved;
}

void* start_up_memory(std::size_t bytes, std::size_t alignment) {
  std::size_t used = g_start_up_used.load();
  for (;;) {
    const std::size_t at = (used + alignment - 1) & ~(alignment - 1);
    if (at + bytes > g_start_up.size()) return nullptr;
    if (g_start_up_used.compare_exchange_weak(used, at + bytes)) return &g_start_up[at];
  }
}

}  // namespace faultline::preload
