// SPDX-License-Identifier: Apache-2.0
//
// Plays a program of allocator operations (ops_program.h) on any platform and allocator.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/platform.h"
#include "allocator/ptmalloc/settings.h"
#include "scenarios/workloads/ops_program.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

// A block on a stack; the stack is a list through the pool.
struct OpsBlock {
  alloc::Addr at = 0;
  std::uint64_t bytes = 0;
  std::uint32_t older = 0, newer = 0;  // index + 1; 0: none
};

struct OpsCounts {
  std::uint64_t calls = 0, refused = 0, frees = 0;
  bool pool_used_up = false;
};

// One thread of a program: its stacks, kept in `pool`.
template <alloc::ThreadedPlatform P, typename Allocator>
class OpsThread {
 public:
  // Threads that it starts share the rest of the pool equally.  Allocates nothing.
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
    for (unsigned i = 0; i < count; ++i) {
      counts_.calls += counts[i].calls;
      counts_.refused += counts[i].refused;
      counts_.frees += counts[i].frees;
      counts_.pool_used_up |= counts[i].pool_used_up;
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
  std::vector<OpsBlock> pool(params.bytes("blocks"));
  OpsThread<P, Allocator> main(p, heap, *program, pool);
  main.run(0, program->size);
  const OpsCounts& counts = main.counts();
  out.counts["mallocs"] = counts.calls;
  out.counts["refused-mallocs"] = counts.refused;
  out.counts["frees"] = counts.frees;
  if (counts.pool_used_up) out.failure = "more blocks are alive than workload.blocks says";
  return out;
}

}  // namespace faultline::workloads
