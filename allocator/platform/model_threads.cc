// SPDX-License-Identifier: Apache-2.0
//
// Threads of the modelled process as a libc makes and ends them: a stack from the kernel or
// from the cache of stacks, clone, and at the end the stack's pages given back.
//
// Stands for: allocate_stack, start_thread, advise_stack_range, queue_stack (glibc to 2.41,
// nptl). Model: the threads wait for each other at the start, asleep, as at a futex
// barrier; signal masks, robust lists and rseq cost nothing.
#include <algorithm>
#include <deque>
#include <memory>

#include "allocator/platform/model.h"
#include "sim/engine.h"

namespace faultline::alloc {
namespace {

constexpr Place kPthreadCreate{"pthread_create"}, kPthreadJoin{"pthread_join"},
    kStartThread{"start_thread"};
constexpr Centre kSysClone{"sys_clone", true}, kSysFutex{"sys_futex", true},
    kSysExit{"sys_exit", true};

// ARCH_MIN_GUARD_SIZE (sysdeps/aarch64/nptl).
constexpr std::uint64_t least_guard(arch::Isa isa) {
  return isa == arch::Isa::kArm64 ? 65536 : 0;
}

constexpr std::uint64_t kDescriptorBytes =
    2304;  // struct pthread; who creates a thread sets it up

// PTHREAD_STACK_MIN: what a thread that ends doesn't give back of its stack.
std::uint64_t least_stack(arch::Isa isa) {
  switch (isa) {
    case arch::Isa::kArm64:
    case arch::Isa::kPpc64Hash:
    case arch::Isa::kPpc64Radix:
    case arch::Isa::kMips64:
    case arch::Isa::kLoongarch64:
      return 131072;
    default:
      return 16384;
  }
}

}  // namespace

class ModelThreads {
 public:
  ModelThreads(Model& main, void (*body)(Model&, unsigned, void*), void* arg)
      : main_(main), process_(main.process_), body_(body), arg_(arg) {}

  void create();
  void release();
  void join_all();

 private:
  struct Thread {
    unsigned index = 0;
    ModelProcess::Stack stack;
    Task* task = nullptr;
    bool waits_for_start = false;
    bool ended = false;
  };
  [[nodiscard]] const arch::Costs& costs() const {
    return process_.process_.kernel().profile().costs;
  }
  ModelProcess::Stack take_stack();
  void keep_stack(const ModelProcess::Stack& stack);
  void run(Thread& thread, Task& task);
  // The bytes of the stack from `from` to `to` below its top.
  void touch_stack(Model& p, const ModelProcess::Stack& stack, std::uint64_t from,
                   std::uint64_t to);

  Model& main_;
  ModelProcess& process_;
  void (*body_)(Model&, unsigned, void*);
  void* arg_;
  std::deque<Thread> threads_;  // stable addresses
  bool released_ = false;
  const Thread* awaited_ = nullptr;  // the main thread sleeps until it ends
};

void Model::run_threads(unsigned count, void (*body)(Model&, unsigned, void*), void* arg) {
  ModelThreads threads(*this, body, arg);
  process_.multi_threaded_ = true;
  if (process_.options_.start == ThreadStart::kAtOnce) threads.release();
  for (unsigned i = 0; i < count; ++i) threads.create();
  if (process_.options_.start == ThreadStart::kTogether) threads.release();
  threads.join_all();
}

void ModelThreads::touch_stack(Model& p, const ModelProcess::Stack& stack,
                               std::uint64_t from, std::uint64_t to) {
  const Addr top = stack.start + stack.bytes;
  if (from < to) p.touch(top - to, to - from, Touch::kWrite);
}

// The newest kept one, else a mapping with a guard page at its low end.
ModelProcess::Stack ModelThreads::take_stack() {
  ModelProcess::Stack stack;
  if (!process_.stacks_.empty()) {
    stack = process_.stacks_.back();
    process_.stacks_.pop_back();
  } else {
    const auto isa = process_.process_.kernel().profile().isa;
    const std::uint64_t guard = std::max(main_.facts().page_size, least_guard(isa));
    stack.bytes = process_.options_.stack_bytes + guard;
    const SysValue map = main_.mmap(0, stack.bytes, sys::kProtNone,
                                    sys::kMapPrivate | sys::kMapAnonymous | sys::kMapStack);
    FAULTLINE_CHECK_EQ(map.error, 0);
    stack.start = map.value;
    main_.mprotect(stack.start + guard, stack.bytes - guard,
                   sys::kProtRead | sys::kProtWrite);
    if (process_.hooks_.create != nullptr)
      stack.block = process_.hooks_.create(main_, process_.hooks_.arg);
  }
  touch_stack(main_, stack, 0, kDescriptorBytes);
  return stack;
}

void ModelThreads::create() {
  const Model::Frame frame(main_, kPthreadCreate);
  Thread& thread = threads_.emplace_back();
  thread.index = static_cast<unsigned>(threads_.size()) - 1;
  thread.stack = take_stack();
  Task& parent = main_.task_;
  main_.system_call(kSysClone, costs().clone_base);
  parent.sync();
  thread.task = &parent.engine().spawn("thread-" + std::to_string(++process_.threads_made_),
                                       [this, &thread](Task& task) { run(thread, task); });
}

void ModelThreads::run(Thread& thread, Task& task) {
  Model p(process_, task);
  const Model::Frame frame(p, kStartThread);
  touch_stack(p, thread.stack, kDescriptorBytes, process_.options_.stack_touched_bytes);
  task.sync();
  if (!released_) {
    p.system_call(kSysFutex, costs().futex_call);
    task.sync();
    thread.waits_for_start = !released_;
    if (thread.waits_for_start) task.block(TaskState::kSleeping);
  }
  body_(p, thread.index, arg_);
  if (process_.hooks_.exit != nullptr) process_.hooks_.exit(p, process_.hooks_.arg);

  const auto& profile = process_.process_.kernel().profile();
  const std::uint64_t used = 2 * p.facts().page_size + least_stack(profile.isa);
  if (thread.stack.bytes > used)
    p.madvise(thread.stack.start, thread.stack.bytes - used, sys::kMadvDontneed);
  p.system_call(kSysExit, costs().futex_call);
  task.sync();
  thread.ended = true;
  if (awaited_ == &thread) task.engine().wake(main_.task_, task.now());
}

void ModelThreads::release() {
  Task& main = main_.task_;
  main_.system_call(kSysFutex, costs().futex_call);
  main.sync();
  released_ = true;
  for (Thread& t : threads_)
    if (t.waits_for_start) main.engine().wake(*t.task, main.now());
}

void ModelThreads::join_all() {
  const Model::Frame frame(main_, kPthreadJoin);
  Task& main = main_.task_;
  for (Thread& t : threads_) {
    main.sync();
    if (!t.ended) {
      main_.system_call(kSysFutex, costs().futex_call);
      main.sync();
      awaited_ = &t;
      if (!t.ended) main.block(TaskState::kSleeping);
      awaited_ = nullptr;
    }
    keep_stack(t.stack);
  }
}

// The cache of stacks keeps so many bytes; the oldest go first, with what belongs to them.
void ModelThreads::keep_stack(const ModelProcess::Stack& stack) {
  auto& kept = process_.stacks_;
  kept.push_back(stack);
  std::uint64_t bytes = 0;
  for (const auto& s : kept) bytes += s.bytes;
  while (bytes > process_.options_.stack_cache_bytes) {
    const ModelProcess::Stack oldest = kept.front();
    kept.erase(kept.begin());
    bytes -= oldest.bytes;
    if (process_.hooks_.release != nullptr)
      process_.hooks_.release(main_, oldest.block, process_.hooks_.arg);
    main_.munmap(oldest.start, oldest.bytes);
  }
}

}  // namespace faultline::alloc
