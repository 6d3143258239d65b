// SPDX-License-Identifier: Apache-2.0
//
// Stackful coroutines that switch to one another directly.
//
// A fiber is a stack with a function on it.  `switch_to` leaves this one where it is and
// goes on with another; there is no scheduler in between.  Stacks have a guard page and are
// pooled, since mapping one costs as much as hundreds of switches.  Under AddressSanitizer
// each switch is announced to it, so that exceptions inside a fiber and use-after-return
// checks work.
//
// Rules: an exception must not leave a fiber, and no switch may happen inside a catch block
// (the C++ runtime keeps caught exceptions per host thread, not per fiber).
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace faultline {

class Fiber;

// What the fibers of one engine share: the stack pool and the note who switched last.
class FiberHost {
 public:
  FiberHost();
  ~FiberHost();
  FiberHost(const FiberHost&) = delete;
  FiberHost& operator=(const FiberHost&) = delete;

  [[nodiscard]] std::size_t stacks_made() const { return made_; }

 private:
  friend class Fiber;
  boost::context::stack_context take_stack();
  void give_back(const boost::context::stack_context& stack);

  std::size_t stack_size_;
  std::size_t made_ = 0;
  std::vector<boost::context::stack_context> free_;
  Fiber* switched_from_ = nullptr;
};

class Fiber {
 public:
  // Runs on the fiber's own stack; returns the fiber to go on with when this one is over.
  using Body = std::function<Fiber&()>;

  // Stands for the stack the program already runs on.
  explicit Fiber(FiberHost& host) : host_(host) {}
  // Starts at the first switch to it.
  Fiber(FiberHost& host, Body body);
  // A fiber that isn't over is dropped with its stack: nothing on it is unwound.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Must be called on this fiber.  Returns when somebody switches back.
#ifdef FAULTLINE_ASAN
  void switch_to(Fiber& next);
#else
  // Inline: a processor foretells returns from the calls before them, which are another
  // fiber's after a switch, so that each function less to return from is a mistake less.
  [[gnu::always_inline]] void switch_to(Fiber& next) {
    host_.switched_from_ = this;
    boost::context::fiber previous = std::move(next.context_).resume();
    Fiber& from = *host_.switched_from_;
    if (previous) [[likely]]
      from.context_ = std::move(previous);
    else
      from.is_over();
  }
#endif

 private:
  void arrived(boost::context::fiber&& previous);
  void is_over();

  FiberHost& host_;
  Body body_;
  boost::context::fiber context_;  // where it stands; empty while it runs or when over
  boost::context::stack_context stack_;  // sp is null for the program's own stack
  void* fake_stack_ = nullptr;           // AddressSanitizer's, while switched away
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
};

}  // namespace faultline
