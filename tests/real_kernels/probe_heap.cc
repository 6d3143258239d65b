// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/probe_heap.h"

#include <vector>

#include "allocator/platform/model.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "allocator/ptmalloc/release.h"
#include "sim/check.h"
#include "sim/engine.h"

namespace faultline::real_kernels {
namespace {

using alloc::Model;
using Heap = alloc::Ptmalloc<Model>;

// Where the first chunk of main() lies above the start of the heap: behind the thread-local
// variables of the main thread and what start-up allocated.  Recorded as the address of a
// first malloc(1000).
std::uint64_t first_chunk(arch::Isa isa) {
  switch (isa) {
    case arch::Isa::kX86_64:
      return 0x16c0;
    case arch::Isa::kArm64:
      return 0x1490;
    default:
      return 0x14d0;
  }
}

alloc::ModelOptions options(std::uint64_t stack_touched_bytes) {
  alloc::ModelOptions o;
  o.stack_touched_bytes = stack_touched_bytes;
  o.start = alloc::ThreadStart::kAtOnce;
  return o;
}

class ProbeThread : public ProbeHeap::Thread {
 public:
  ProbeThread(Model& model, Heap& heap) : model_(model), heap_(heap) {}
  kernel::VirtAddr malloc(std::uint64_t bytes) override {
    return {heap_.malloc(model_, bytes)};
  }
  void touch(kernel::VirtAddr at, std::uint64_t bytes, std::uint64_t stride) override {
    for (std::uint64_t i = 0; i < bytes; i += stride)
      model_.touch(at.v + i, 1, alloc::Touch::kWrite);
  }

 private:
  Model& model_;
  Heap& heap_;
};

}  // namespace

struct ProbeHeap::Impl {
  Impl(kernel::Process& process, Task& task, std::uint64_t stack_touched_bytes)
      : program(process, options(stack_touched_bytes)),
        main(program, task),
        heap(main, *alloc::find_release("2.36")) {}

  // __libc_setup_tls() and the allocations of start-up, the thread cache first among them.
  void start_up() {
    constexpr std::uint64_t kTls = 0xc00, kThreadCache = 0x290, kHeader = 16;
    const std::uint64_t first = first_chunk(program.process().kernel().profile().isa);
    const std::uint64_t request = first - kTls - kThreadCache - kHeader;
    const alloc::SysValue at = main.sbrk(kTls);
    FAULTLINE_CHECK_EQ(at.error, 0);
    main.touch(at.value, kTls, alloc::Touch::kWrite);
    const alloc::Addr chunk = heap.malloc(main, request);
    FAULTLINE_CHECK_EQ(chunk + request, at.value + first);
  }

  // The probe's two barriers around the mark of the phase.
  struct Gathering {
    Heap& heap;
    unsigned count, arrived = 0;
    const std::function<void(Thread&)>& body;
    const std::function<void()>& at_barrier;
    std::vector<Task*> waiting{};
  };
  static void thread(Model& model, unsigned, void* arg) {
    auto& all = *static_cast<Gathering*>(arg);
    ProbeThread self(model, all.heap);
    all.body(self);
    Task& task = model.task();
    task.sync();
    if (++all.arrived < all.count) {
      all.waiting.push_back(&task);
      task.block(TaskState::kSleeping);
      return;
    }
    all.at_barrier();
    for (Task* other : all.waiting) task.engine().wake(*other, task.now());
  }

  alloc::ModelProcess program;
  Model main;
  Heap heap;
};

ProbeHeap::ProbeHeap(kernel::Process& process, Task& main,
                     std::uint64_t stack_touched_bytes)
    : impl_(std::make_unique<Impl>(process, main, stack_touched_bytes)) {
  impl_->start_up();
}

ProbeHeap::~ProbeHeap() = default;

kernel::VirtAddr ProbeHeap::malloc(std::uint64_t bytes) {
  return {impl_->heap.malloc(impl_->main, bytes)};
}

void ProbeHeap::free(kernel::VirtAddr at) {
  impl_->heap.free(impl_->main, at.v);
}

void ProbeHeap::threads(unsigned count, const std::function<void(Thread&)>& body,
                        const std::function<void()>& at_barrier) {
  Impl::Gathering all{impl_->heap, count, 0, body, at_barrier};
  impl_->main.run_threads(count, Impl::thread, &all);
}

}  // namespace faultline::real_kernels
