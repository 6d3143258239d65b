// SPDX-License-Identifier: Apache-2.0
// Boost.Context fibers with pooled stacks and the annotations AddressSanitizer wants.
//
// This file itself is built without its instrumentation (see CMakeLists.txt): a fiber's
// last switch gives its fake stack back, and then the frames that are still to return
// mustn't lie there.
#include "sim/fiber.h"

#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <new>
#include <utility>

#include "sim/check.h"

#ifdef FAULTLINE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace faultline {
namespace {

#ifdef FAULTLINE_ASAN
constexpr std::size_t kStackBytes =
    1024 * 1024;  // red zones make frames several times larger
void before_switch(void** fake_stack, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}
void after_switch(void* fake_stack, const void** bottom, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
}
void forget_frames(const void* bottom, std::size_t bytes) {
  __asan_unpoison_memory_region(bottom, bytes);
}
#else
constexpr std::size_t kStackBytes = 256 * 1024;
void before_switch(void**, const void*, std::size_t) {}
void after_switch(void*, const void**, std::size_t*) {}
void forget_frames(const void*, std::size_t) {}
#endif

// Boost releases a stack while the fiber's last frame is still being left; the pool does it
// later.
struct KeepStack {
  void deallocate(boost::context::stack_context&) noexcept {}
};

const void* bottom_of(const boost::context::stack_context& stack) {
  return static_cast<const char*>(stack.sp) - stack.size;
}

}  // namespace

FiberHost::FiberHost() : stack_size_(kStackBytes) {}

FiberHost::~FiberHost() {
  boost::context::protected_fixedsize_stack allocator(stack_size_);
  for (boost::context::stack_context& stack : free_) allocator.deallocate(stack);
}

boost::context::stack_context FiberHost::take_stack() {
  if (free_.empty()) {
    ++made_;
    return boost::context::protected_fixedsize_stack(stack_size_).allocate();
  }
  const boost::context::stack_context stack = free_.back();
  free_.pop_back();
  return stack;
}

void FiberHost::give_back(const boost::context::stack_context& stack) {
  forget_frames(bottom_of(stack), stack.size);
  free_.push_back(stack);
}

Fiber::Fiber(FiberHost& host, Body body)
    : host_(host), body_(std::move(body)), stack_(host.take_stack()) {
  stack_bottom_ = bottom_of(stack_);
  stack_bytes_ = stack_.size;
  context_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_),
      KeepStack{}, [this](boost::context::fiber&& previous) {
        arrived(std::move(previous));
        Fiber& next = body_();
        host_.switched_from_ = this;
        before_switch(nullptr, next.stack_bottom_, next.stack_bytes_);
        return std::move(next.context_);
      });
}

Fiber::~Fiber() {
  if (context_) {  // drop the handle: its destructor would unwind the stack behind our back
    alignas(boost::context::fiber) std::byte dropped[sizeof(boost::context::fiber)];
    new (dropped) boost::context::fiber(std::move(context_));
  }
  if (stack_.sp != nullptr) host_.give_back(stack_);
}

#ifdef FAULTLINE_ASAN
void Fiber::switch_to(Fiber& next) {
  host_.switched_from_ = this;
  before_switch(&fake_stack_, next.stack_bottom_, next.stack_bytes_);
  arrived(std::move(next.context_).resume());
}
#endif

// On this fiber again (or for the first time): file away the one that switched to it.
void Fiber::arrived(boost::context::fiber&& previous) {
  Fiber& from = *host_.switched_from_;
  after_switch(fake_stack_, &from.stack_bottom_, &from.stack_bytes_);
  if (previous)
    from.context_ = std::move(previous);
  else
    from.is_over();
}

void Fiber::is_over() {
  host_.give_back(stack_);
  stack_ = {};
}

}  // namespace faultline
