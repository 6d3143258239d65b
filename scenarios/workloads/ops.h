// SPDX-License-Identifier: Apache-2.0
//
// Plays a program of allocator operations (ops_program.h) on any platform and allocator.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "allocator/platform.h"
#include "allocator/ptmalloc/settings.h"
#include "scenarios/workloads/ops_program.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

// A block on a stack; the stack is a list through the pool.
struct OpsBlock {
  alloc::Addr at;
  std::uint64_t bytes;
  std::uint32_t older, newer;  // index + 1; 0: none
};

// What the children do is not counted here: they are other processes.
struct OpsCounts {
  std::uint64_t calls = 0, refused = 0, frees = 0, forks = 0, refused_forks = 0;
  bool pool_used_up = false;
  bool no_fork = false;            // the allocator can't be copied
  std::uint64_t child_status = 0;  // of the first one that ended with another than 0

  void add(const OpsCounts& other) {
    calls += other.calls;
    refused += other.refused;
    frees += other.frees;
    forks += other.forks;
    refused_forks += other.refused_forks;
    pool_used_up |= other.pool_used_up;
    no_fork |= other.no_fork;
    if (child_status == 0) child_status = other.child_status;
  }
};

// One thread of a program: its stacks, kept in `pool`.
template <alloc::ThreadedPlatform P, typename Allocator>
class OpsThread {
 public:
  // Threads that it starts share the rest of the pool equally; a child of a fork takes half
  // of it.  Allocates nothing.
  OpsThread(P& p, Allocator& heap, const OpsProgram& program, std::span<OpsBlock> pool)
      : p_(p), heap_(heap), program_(program), pool_(pool) {}

  // Operations [from, to).
  void run(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const MallocOp& op = program_.ops[i];
      if (op.kind == MallocOp::kRepeat) {
        for (std::int64_t k = 0; k < op.a; ++k) run(i + 1, op.end);
        i = op.end;
      } else if (op.kind == MallocOp::kThreads) {
        run_threads(i, op);
        i = op.end;
      } else if (op.kind == MallocOp::kFork) {
        run_fork(i);
        i = op.end;
      } else {
        play(op);
      }
    }
  }
  [[nodiscard]] const OpsCounts& counts() const { return counts_; }

 private:
  struct Stack {
    std::uint32_t oldest = 0, newest = 0;
  };

  void play(const MallocOp& op) {
    Stack& stack = stacks_[op.stack];
    const auto a = static_cast<std::uint64_t>(op.a), b = static_cast<std::uint64_t>(op.b);
    switch (op.kind) {
      case MallocOp::kMalloc:
        push(stack, heap_.malloc(p_, a), a);
        break;
      case MallocOp::kCalloc:
        push(stack, heap_.calloc(p_, a, b), a * b);
        break;
      case MallocOp::kMemalign:
        push(stack, heap_.memalign(p_, a, b), b);
        break;
      case MallocOp::kRealloc:
        realloc(stack, a);
        break;
      case MallocOp::kWrite:
        for (std::uint32_t i = stack.oldest; i != 0; i = block(i).newer)
          p_.set(block(i).at, 0x5a, block(i).bytes);
        break;
      case MallocOp::kRead:
        for (std::uint32_t i = stack.oldest; i != 0; i = block(i).newer)
          p_.touch(block(i).at, std::max<std::uint64_t>(block(i).bytes, 1),
                   alloc::Touch::kRead);
        break;
      case MallocOp::kFree:
        free(stack, op);
        break;
      case MallocOp::kTrim:
        heap_.malloc_trim(p_, a);
        break;
      case MallocOp::kMallopt:
        heap_.mallopt(p_, static_cast<alloc::Param>(op.b), op.a);
        break;
      case MallocOp::kSbrk:
        p_.sbrk(op.a);
        break;
      case MallocOp::kSleep:
        p_.usleep(a);
        break;
      default:
        break;
    }
  }

  OpsBlock& block(std::uint32_t index) { return pool_[index - 1]; }

  void push(Stack& stack, alloc::Addr at, std::uint64_t bytes) {
    ++counts_.calls;
    if (at == 0) {
      ++counts_.refused;
      return;
    }
    std::uint32_t index = free_;
    if (index != 0)
      free_ = block(index).older;
    else if (used_ < pool_.size())
      index = static_cast<std::uint32_t>(++used_);
    else
      counts_.pool_used_up = true;
    if (index == 0) return;
    block(index) = {at, bytes, stack.newest, 0};
    (stack.newest != 0 ? block(stack.newest).newer : stack.oldest) = index;
    stack.newest = index;
  }
  void realloc(Stack& stack, std::uint64_t bytes) {
    ++counts_.calls;
    if (stack.newest == 0) return;
    OpsBlock& last = block(stack.newest);
    const alloc::Addr moved = heap_.realloc(p_, last.at, bytes);
    if (moved == 0) {
      ++counts_.refused;
      return;
    }
    last.at = moved;
    last.bytes = bytes;
  }
  void free_one(Stack& stack, std::uint32_t index) {
    const OpsBlock gone = block(index);
    heap_.free(p_, gone.at);
    ++counts_.frees;
    (gone.older != 0 ? block(gone.older).newer : stack.oldest) = gone.newer;
    (gone.newer != 0 ? block(gone.newer).older : stack.newest) = gone.older;
    block(index).older = free_;
    free_ = index;
  }
  void free(Stack& stack, const MallocOp& op) {
    switch (op.which) {
      case MallocOp::kAll:
        while (stack.oldest != 0) free_one(stack, stack.oldest);
        break;
      case MallocOp::kReverse:
        while (stack.newest != 0) free_one(stack, stack.newest);
        break;
      case MallocOp::kLast:
        if (stack.newest != 0) free_one(stack, stack.newest);
        break;
      case MallocOp::kFirst:
        if (stack.oldest != 0) free_one(stack, stack.oldest);
        break;
      case MallocOp::kEvery: {
        std::int64_t n = 0;
        for (std::uint32_t i = stack.oldest; i != 0;) {
          const std::uint32_t next = block(i).newer;
          if (++n % op.a == 0) free_one(stack, i);
          i = next;
        }
        break;
      }
    }
  }

  struct Crew {
    Allocator* heap;
    const OpsProgram* program;
    std::span<OpsBlock> pool;
    std::size_t from, to;
    std::uint64_t share;
    OpsCounts* counts;
  };
  static constexpr std::size_t kMostThreads = 256;

  void run_threads(std::size_t at, const MallocOp& op) {
    const auto count =
        static_cast<unsigned>(std::min<std::int64_t>(op.a, std::int64_t{kMostThreads}));
    std::array<OpsCounts, kMostThreads> counts{};
    const std::span<OpsBlock> rest = pool_.subspan(used_);
    Crew crew{&heap_, &program_, rest, at + 1, op.end, rest.size() / count, counts.data()};
    p_.run_threads(
        count,
        [](P& p, unsigned index, void* arg) {
          const Crew& c = *static_cast<Crew*>(arg);
          OpsThread thread(p, *c.heap, *c.program,
                           c.pool.subspan(index * c.share, c.share));
          thread.run(c.from, c.to);
          c.counts[index] = thread.counts();
        },
        &crew);
    for (unsigned i = 0; i < count; ++i) counts_.add(counts[i]);
  }

  // As it is when the parent forks; the child has nobody to share it with.
  struct Fork {
    OpsThread& parent;
    Allocator heap;
    std::span<OpsBlock> pool;
    std::size_t used;
    std::uint32_t free;
    std::array<Stack, OpsProgram::kMostStacks> stacks;
    std::size_t at;
  };
  enum ChildStatus : int { kFine, kPoolUsedUp };

  static int child(P& p, void* arg) {
    Fork& fork = *static_cast<Fork*>(arg);
    const OpsProgram& program = fork.parent.program_;
    fork.heap.fork_unlock_child(p);
    OpsThread thread(p, fork.heap, program, fork.pool);
    thread.used_ = fork.used;
    thread.free_ = fork.free;
    thread.stacks_ = fork.stacks;
    thread.run(fork.at + 1, program.ops[fork.at].parent);
    const OpsCounts& counts = thread.counts();
    return counts.pool_used_up ? static_cast<int>(kPoolUsedUp)
                               : static_cast<int>(counts.child_status);
  }
  static void parent(P& p, void* arg) {
    const Fork& fork = *static_cast<Fork*>(arg);
    const MallocOp& op = fork.parent.program_.ops[fork.at];
    fork.parent.heap_.fork_unlock_parent(p);
    if (op.parent != op.end) fork.parent.run(std::size_t{op.parent} + 1, op.end);
  }
  // The child's half of the pool begins with copies of the blocks in use.
  void run_fork(std::size_t at) {
    if constexpr (std::is_constructible_v<Allocator, const Allocator&>) {
      const std::span<OpsBlock> whole = pool_;
      const std::size_t own = used_ + (whole.size() - used_) / 2;
      const std::span<OpsBlock> other = whole.subspan(own);
      if (other.size() < used_) {
        counts_.pool_used_up = true;
        return;
      }
      std::copy_n(whole.begin(), used_, other.begin());
      ++counts_.forks;
      pool_ = whole.first(own);
      heap_.fork_lock(p_);
      Fork fork{*this, Allocator(heap_), other, used_, free_, stacks_, at};
      const alloc::SysValue status = p_.run_child(child, parent, &fork);
      pool_ = whole;
      counts_.refused_forks += status.ok() ? 0 : 1;
      counts_.pool_used_up |= status.value == kPoolUsedUp;
      if (counts_.child_status == 0) counts_.child_status = status.value;
    } else {
      counts_.no_fork = true;
    }
  }

  P& p_;
  Allocator& heap_;
  const OpsProgram& program_;
  std::span<OpsBlock> pool_;
  std::size_t used_ = 0;
  std::uint32_t free_ = 0;
  std::array<Stack, OpsProgram::kMostStacks> stacks_{};
  OpsCounts counts_;
};

template <alloc::ThreadedPlatform P, typename Allocator>
Outcome ops(P& p, Allocator& heap, const Params& params) {
  Outcome out;
  const auto program = std::make_unique<OpsProgram>();
  if (read_ops(params.text("program"), *program).what != nullptr) {
    out.failure = "the program can't be read";  // the loader has refused it before
    return out;
  }
  // Natively it counts: what is not used stays untouched.
  const std::size_t room = params.bytes("blocks");
  const auto pool = std::make_unique_for_overwrite<OpsBlock[]>(room);
  OpsThread<P, Allocator> main(p, heap, *program, {pool.get(), room});
  main.run(0, program->size);
  const OpsCounts& counts = main.counts();
  out.counts["mallocs"] = counts.calls;
  out.counts["refused-mallocs"] = counts.refused;
  out.counts["frees"] = counts.frees;
  out.counts["forks"] = counts.forks;
  out.counts["refused-forks"] = counts.refused_forks;
  if (counts.child_status != 0)
    out.failure = "a child ended with status " + std::to_string(counts.child_status);
  if (counts.no_fork) out.failure = "this allocator doesn't survive a fork";
  if (counts.pool_used_up) out.failure = "more blocks are alive than workload.blocks says";
  return out;
}

}  // namespace faultline::workloads
