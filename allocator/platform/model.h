// SPDX-License-Identifier: Apache-2.0
//
// The modelled world: the one bridge from allocators and workloads to the modelled kernel.
//
// A ModelProcess joins a process of the modelled kernel with host memory that holds its
// bytes; a Model is one task's view of it.  System calls go through kernel_model/syscall.h.
// A load or store is a look into a cache of pieces of pages that may be accessed; what
// misses asks the page tables, and what they don't allow faults.  Pages that are only
// touched never cost the host memory.
//
// Model: loads, stores and atomics take no time beyond the instructions that `cycles`
// names, which count them; one instruction takes one cycle.  Misses of the data caches are
// modelled for memcpy and memset alone, where the machine has them (Profile::llc).  Where
// TLBs are (Profile::tlb_model), each task has a cache of pieces of its own: what is in
// there is in the first level of its CPU's TLB, and marked as used.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "allocator/platform.h"
#include "allocator/platform/echoes.h"
#include "allocator/platform/model_lock.h"
#include "allocator/platform/model_pieces.h"
#include "allocator/platform/window.h"
#include "kernel_model/kernel.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"
#include "sim/task.h"

namespace faultline::alloc {

class Model;

// When the threads of run_threads begin their work: all together once the last is made, or
// each as soon as it is made.
enum class ThreadStart : std::uint8_t { kTogether, kAtOnce };

// Which thread stacks a libc keeps for later threads, and what it takes from the system for
// one.
struct ModelOptions {
  std::uint64_t seed = 1;                              // of random_key
  std::uint64_t stack_bytes = std::uint64_t{8} << 20;  // ulimit -s
  std::uint64_t stack_cache_bytes = std::uint64_t{40} << 20;
  // What a new thread has touched of its stack when its function starts: descriptor,
  // thread-local variables, the frames of start_thread and of the function itself.
  std::uint64_t stack_touched_bytes = 8192;
  ThreadStart start = ThreadStart::kTogether;
};

// The modelled program touched what it may not, or was killed for want of memory.  Leaves
// Engine::run.
class ProgramKilled : public std::runtime_error {
 public:
  ProgramKilled(kernel::Signal by, Addr where, const std::string& message)
      : std::runtime_error(message), signal(by), at(where) {}
  kernel::Signal signal;
  Addr at;
};

class ModelProcess {
 public:
  // `process` must outlive the object, and its kernel's engine, too.
  explicit ModelProcess(kernel::Process& process, const ModelOptions& options = {});
  // The copy that a fork makes of `parent`: its bytes, its libc's state, no thread's locks.
  ModelProcess(kernel::Process& process, const ModelProcess& parent);
  ~ModelProcess();
  ModelProcess(const ModelProcess&) = delete;
  ModelProcess& operator=(const ModelProcess&) = delete;

  [[nodiscard]] kernel::Process& process() const { return process_; }
  [[nodiscard]] const PlatformFacts& facts() const { return facts_; }
  // Pieces of 4 KiB that hold bytes on the host.
  [[nodiscard]] std::uint64_t host_pieces() const { return window_.backed_pieces(); }

 private:
  friend class Model;
  friend class ModelThreads;
  friend class ModelChild;
  kernel::Process& process_;
  ModelOptions options_;
  PlatformFacts facts_;
  Window window_;
  Echoes echoes_{window_};
  PieceCache pieces_;  // of all tasks, without TLBs
  Addr break_ = 0;     // libc's __curbrk: 0 until the kernel was asked
  bool multi_threaded_ = false;
  std::uint64_t storage_used_ = 0;
  std::uint64_t ps_per_instruction_ = 0;  // in units of 2^-16 ps
  ThreadHooks<Model> hooks_;
  BusHandler<Model> bus_handler_;
  std::map<Addr, ModelLock> locks_;
  // By first use; reports name them after a child is gone, so that it uses its parent's.
  using Centres = std::deque<std::pair<const Place*, Centre>>;
  std::shared_ptr<Centres> centres_ = std::make_shared<Centres>();
  struct Stack {
    Addr start = 0;
    std::uint64_t bytes = 0;
    Addr block = 0;  // what the create hook gave
  };
  std::vector<Stack> stacks_;  // kept for later threads, oldest first
  unsigned threads_made_ = 0, children_made_ = 0;
  // Copied while their pages were; whoever called fork takes it.
  std::vector<std::unique_ptr<ModelProcess>> children_;
};

class Model {
 public:
  using Lock = ModelLock;

  // Stands one level deeper in the attribution while it lives.
  class Frame {
   public:
    [[gnu::always_inline]] Frame(Model& m, const Place& place)
        : m_(m), saved_(m.task_.where()) {
      m.settle();
      m.task_.stand_at(m.below(place));
    }
    [[gnu::always_inline]] ~Frame() {
      m_.settle();
      m_.task_.stand_at(saved_);
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Model& m_;
    CentreTree::Node* saved_;
  };

  Model(ModelProcess& process, Task& task);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const PlatformFacts& facts() const { return process_.facts_; }
  [[nodiscard]] Task& task() const { return task_; }

  SysValue mmap(Addr hint, std::uint64_t length, unsigned prot, unsigned flags);
  int munmap(Addr start, std::uint64_t length);
  int mprotect(Addr start, std::uint64_t length, unsigned prot);
  int madvise(Addr start, std::uint64_t length, int advice);
  SysValue mremap(Addr start, std::uint64_t old_length, std::uint64_t length,
                  unsigned flags);
  SysValue vrange(Addr start, std::uint64_t length, int mode, Addr fourth);
  bool set_bus_handler(const BusHandler<Model>& handler) {
    process_.bus_handler_ = handler;
    return true;
  }
  SysValue sbrk(std::int64_t delta);
  [[nodiscard]] std::uint64_t monotonic_ns();
  void usleep(std::uint64_t microseconds);
  std::uint64_t random_key();

  // The hottest code there is; compilers think it too large to be inlined.
  template <typename T>
  [[nodiscard, gnu::always_inline]] T load(Addr at) {
    const PieceCache::Entry& e = entry(at);
    if (at - e.readable >= Window::kPiece) [[unlikely]]
      admit(at, kernel::Access::kRead);
    T v;
    std::memcpy(&v, e.host + (at - e.readable), sizeof v);
    return v;
  }
  template <typename T>
  [[gnu::always_inline]] void store(Addr at, T v) {
    const PieceCache::Entry& e = entry(at);
    if (at - e.writable >= Window::kPiece) [[unlikely]]
      admit(at, kernel::Access::kWrite);
    std::memcpy(e.host + (at - e.writable), &v, sizeof v);
  }
  void touch(Addr start, std::uint64_t length, Touch kind);
  void set(Addr to, std::uint8_t byte, std::uint64_t n);
  void copy(Addr to, Addr from, std::uint64_t n);
  void cycles(std::uint64_t n) { pending_ += n; }

  std::uint64_t atomic_load(Addr at) {
    synchronise();
    return load<std::uint64_t>(at);
  }
  void atomic_store(Addr at, std::uint64_t v) {
    synchronise();
    store(at, v);
  }
  std::uint64_t atomic_add(Addr at, std::uint64_t n);
  std::uint64_t atomic_exchange(Addr at, std::uint64_t v);
  bool compare_exchange(Addr at, std::uint64_t expected, std::uint64_t desired);

  void lock(Lock& lock) {
    flush();
    lock.lock(task_, process_.process_);
  }
  bool try_lock(Lock& lock) {
    flush();
    return lock.try_lock(task_, process_.process_);
  }
  void unlock(Lock& lock) {
    flush();
    lock.unlock(task_, process_.process_);
  }
  Lock& lock_at(Addr at, const char* name);
  void reset_lock(Lock& lock) { lock.reset(); }

  ThreadWords& thread_words() { return words_; }
  [[nodiscard]] bool multi_threaded() const { return process_.multi_threaded_; }
  Addr static_storage(std::uint64_t n);
  void set_thread_hooks(const ThreadHooks<Model>& hooks) { process_.hooks_ = hooks; }
  void run_threads(unsigned count, void (*body)(Model&, unsigned, void*), void* arg);
  SysValue run_child(int (*child)(Model&, void*), void (*parent)(Model&, void*), void* arg);

 private:
  friend class ModelThreads;
  friend class ModelChild;
  // Static storage lies where no mapping can: its offset in the window is below
  // mmap_min_addr.
  static constexpr Addr kStorageBit = Addr{1} << 62;
  static constexpr Addr kStorageStart = kStorageBit + 0x1000,
                        kStorageEnd = kStorageBit + 0x1'0000;

  [[nodiscard]] const PieceCache::Entry& entry(Addr at) const {
    return entries_[PieceCache::index(at)];
  }
  // Makes the page of `at` accessible, faulting if need be, and the piece's bytes usable on
  // the host.
  void admit(Addr at, kernel::Access access);
  // As admit, without bytes on the host.
  void access(Addr at, kernel::Access access);
  void own_word(Addr at);
  // The program's SIGBUS handler has run: try again.  False: there is none, or it gave up.
  bool recovered(kernel::Signal signal, Addr at);
  [[noreturn]] void killed(kernel::Signal signal, Addr at, kernel::Access access);

  // Adds the computation since the last time to the node where the task stands now.
  void settle() {
    if (pending_ == 0) return;
    const Duration d =
        Duration::ps(static_cast<std::int64_t>(pending_ * ps_per_instruction_ >> 16));
    task_.where()->add(TaskState::kRunning, d);
    settled_ += d;
    pending_ = 0;
  }
  // And makes the task's clock show it.
  void flush() {
    settle();
    if (settled_ == Duration{}) return;
    task_.charge_booked(settled_);
    settled_ = {};
  }
  void synchronise() {
    flush();
    task_.sync();
  }
  // A system call of which only the time is modelled: the way in and out, and `body`.
  void system_call(const Centre& centre, Duration body);
  void charge_bytes(std::uint64_t n, std::uint64_t rate);
  [[nodiscard]] kernel::DataCaches* caches_for(Addr a, Addr b, std::uint64_t n) const;
  void set_bytes(Addr to, std::uint8_t byte, std::uint64_t n, std::uint64_t rate);
  void copy_small(Addr to, Addr from, std::uint64_t n, std::uint64_t rate);
  bool access_all(Addr start, std::uint64_t n, kernel::Access access);
  [[nodiscard]] std::uint64_t accessible(Addr start, std::uint64_t n,
                                         kernel::Access access);
  void copy_bytes(Addr to, Addr from, std::uint64_t n);
  void copy_large(Addr to, Addr from, std::uint64_t n);
  [[nodiscard]] static std::uint64_t room_in_piece(Addr at) {
    return Window::kPiece - (at & (Window::kPiece - 1));
  }

  struct Step {
    const CentreTree::Node* from = nullptr;
    const Place* place = nullptr;
    CentreTree::Node* to = nullptr;
  };
  [[gnu::always_inline]] CentreTree::Node* below(const Place& place) {
    CentreTree::Node* const here = task_.where();
    Step& step = steps_[(reinterpret_cast<std::uintptr_t>(here) / 16 +
                         reinterpret_cast<std::uintptr_t>(&place) / sizeof(Place)) %
                        steps_.size()];
    if (step.from != here || step.place != &place) [[unlikely]]
      find_step(step, place);
    return step.to;
  }
  void find_step(Step& step, const Place& place);

  ModelProcess& process_;
  Task& task_;
  const PieceCache::Entry* entries_;  // of own_pieces_, or of the process
  const std::uint64_t ps_per_instruction_;
  std::uint64_t pending_ = 0;  // instructions not added to a node yet
  Duration settled_;           // added to nodes, not to the task's clock yet
  ThreadWords words_;
  std::array<Step, 64> steps_{};  // where places lie in the attribution tree; a cache
  struct KnownLock {
    Addr at = 0;
    Lock* lock = nullptr;
  };
  std::array<KnownLock, 8> known_locks_{};  // of the process's; a cache

  // With TLBs: on another CPU nothing of this is known.
  class ForgetsOnMove final : public CpuWatcher {
   public:
    ForgetsOnMove(PieceCache& pieces, int cpu) : pieces_(pieces), cpu_(cpu) {}
    void on_cpu_change(Task& task, bool on_cpu) override {
      if (!on_cpu || task.cpu() == cpu_) return;
      cpu_ = task.cpu();
      pieces_.forget();
    }

   private:
    PieceCache& pieces_;
    int cpu_;
  };
  std::unique_ptr<PieceCache> own_pieces_;
  std::unique_ptr<ForgetsOnMove> on_move_;
};

static_assert(ThreadedPlatform<Model>);

}  // namespace faultline::alloc
