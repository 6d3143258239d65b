// SPDX-License-Identifier: Apache-2.0
// Fibers: direct switches, exceptions inside them (a sanitizer build watches), reuse of
// stacks.
#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace faultline {
namespace {

TEST(Fiber, SwitchesGoDirectlyToTheOther) {
  FiberHost host;
  Fiber here(host);
  std::string log;
  std::unique_ptr<Fiber> a, b;
  a = std::make_unique<Fiber>(host, [&]() -> Fiber& {
    log += "a1 ";
    a->switch_to(*b);
    log += "a2 ";
    return *b;
  });
  b = std::make_unique<Fiber>(host, [&]() -> Fiber& {
    log += "b1 ";
    b->switch_to(*a);
    log += "b2 ";
    return here;
  });
  here.switch_to(*a);
  EXPECT_EQ(log, "a1 b1 a2 b2 ");
}

[[gnu::noinline]] int thrown_at_depth(int depth) {
  const std::vector<int> owned(10, depth);
  if (depth == 0) throw std::runtime_error("deep");
  return thrown_at_depth(depth - 1) + owned[0];
}

TEST(Fiber, ExceptionsAreThrownAndCaughtInside) {
  FiberHost host;
  Fiber here(host);
  int caught = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  constexpr int kFibers = 8, kRounds = 10;
  for (int i = 0; i < kFibers; ++i)
    fibers.push_back(std::make_unique<Fiber>(host, [&, i]() -> Fiber& {
      for (int n = 0; n < kRounds; ++n) {
        bool threw = false;
        try {
          thrown_at_depth(10 + n);
        } catch (const std::runtime_error&) {
          threw = true;
        }
        caught += threw;
        fibers[static_cast<std::size_t>(i)]->switch_to(here);
      }
      return here;
    }));
  for (int n = 0; n <= kRounds; ++n)
    for (auto& fiber : fibers) here.switch_to(*fiber);
  EXPECT_EQ(caught, kFibers * kRounds);
}

TEST(Fiber, StacksAreUsedAgain) {
  FiberHost host;
  Fiber here(host);
  for (int i = 0; i < 100; ++i) {
    Fiber one(host, [&]() -> Fiber& {
      volatile char big[8192];
      big[i] = 1;
      EXPECT_EQ(big[i], 1);
      return here;
    });
    here.switch_to(one);
  }
  EXPECT_EQ(host.stacks_made(), 1u);
}

TEST(Fiber, AnUnfinishedOneIsDropped) {
  FiberHost host;
  Fiber here(host);
  bool unwound = false;
  struct Note {
    bool& flag;
    ~Note() { flag = true; }
  };
  {
    std::unique_ptr<Fiber> f;
    f = std::make_unique<Fiber>(host, [&]() -> Fiber& {
      const Note note{unwound};
      f->switch_to(here);
      return here;
    });
    here.switch_to(*f);
  }
  EXPECT_FALSE(unwound);
  EXPECT_EQ(host.stacks_made(), 1u);
}

}  // namespace
}  // namespace faultline
