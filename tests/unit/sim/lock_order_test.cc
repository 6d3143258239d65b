// SPDX-License-Identifier: Apache-2.0
//
// The checks of lock order: deliberately wrong orders end the run with the stacks of both.
#include "sim/lock_order.h"

#include <gtest/gtest.h>

#include "sim/engine.h"
#include "sim/locks.h"

namespace faultline {
namespace {

constexpr Centre kFirst{"takes_a_then_b", true};
constexpr Centre kSecond{"takes_b_then_a", true};
constexpr Centre kThird{"takes_c_then_a", true};
constexpr Centre kInner{"inner", true};

class LockOrderTest : public testing::Test {
 protected:
  LockOrderTest() { engine.check_lock_order(); }

  // `outer` held, `inner` taken and both given back, at a time of its own.
  template <typename Outer, typename Inner>
  void nest(const char* task, const Centre& place, Outer& outer, Inner& inner) {
    at += Duration::us(10);
    engine.spawn(
        task,
        [&](Task& t) {
          const Scope scope(t, place);
          outer.lock(t);
          {
            const Scope deeper(t, kInner);
            inner.lock(t);
            inner.unlock(t);
          }
          outer.unlock(t);
        },
        Time(at));
  }

  Engine engine{MachineShape{.node_of_cpu = {0, 0}, .node_distance = {{10}}}, {}};
  SpinLock a{engine, engine.locks().of("a"), {}};
  SpinLock another_a{engine, engine.locks().of("a"), {}};
  SpinLock b{engine, engine.locks().of("b"), {}};
  Mutex c{engine, engine.locks().of("c"), {}};
  RwSem sem{engine, engine.locks().of("sem"), {}, RwSemRules::k5_11};
  Duration at;
};
using LockOrderDeathTest = LockOrderTest;

TEST_F(LockOrderTest, TheSameOrderIsFine) {
  nest("one", kFirst, a, b);
  nest("two", kFirst, a, b);
  engine.run();
  EXPECT_EQ(engine.lock_order()->pairs(), 1U);
}

TEST_F(LockOrderDeathTest, TheOppositeOrderAbortsWithBothStacks) {
  nest("one", kFirst, a, b);
  nest("two", kSecond, b, a);
  EXPECT_DEATH(engine.run(),
               "task \"two\" holds \"b\", taken in\n  takes_b_then_a\n"
               "and takes \"a\" in\n  takes_b_then_a;inner\n"
               "but before, at .*, task \"one\" holds \"a\", taken in\n  takes_a_then_b\n"
               "and takes \"b\" in\n  takes_a_then_b;inner");
}

TEST_F(LockOrderDeathTest, SoDoesALongerCircleWithTheStackOfEachStep) {
  nest("one", kFirst, c, a);
  nest("two", kFirst, a, b);
  engine.spawn(
      "three",
      [&](Task& t) {
        const Scope scope(t, kThird);
        b.lock(t);
        c.lock(t);
      },
      Time(Duration::us(100)));
  EXPECT_DEATH(engine.run(),
               "task \"three\" holds \"b\"(.|\n)*but before, at .*, task \"one\" holds "
               "\"c\"(.|\n)*but before, at .*, task \"two\" holds \"a\"");
}

TEST_F(LockOrderDeathTest, AReaderCountsLikeAWriter) {
  engine.spawn("one", [&](Task& t) {
    sem.down_read(t);
    c.lock(t);
    c.unlock(t);
    sem.up_read(t);
    c.lock(t);
    sem.down_read(t);
  });
  EXPECT_DEATH(engine.run(), "holds \"c\"(.|\n)*takes \"sem\"(.|\n)*but before");
}

TEST_F(LockOrderTest, ALockThatIsOnlyTriedForMayBeTakenInAnyOrder) {
  engine.spawn("one", [&](Task& t) {
    sem.down_read(t);
    c.lock(t);
    c.unlock(t);
    sem.up_read(t);
    c.lock(t);
    EXPECT_TRUE(sem.down_read_trylock(t));
    sem.up_read(t);
    c.unlock(t);
  });
  engine.run();
}

TEST_F(LockOrderTest, TwoOfOneClassMayNest) {
  nest("one", kFirst, a, another_a);
  engine.run();
  EXPECT_EQ(engine.lock_order()->pairs(), 1U);
}

TEST_F(LockOrderDeathTest, ATaskThatTakesWhatItHoldsAborts) {
  engine.spawn("one", [&](Task& t) {
    const Scope scope(t, kFirst);
    sem.down_read(t);
    sem.down_read(t);
  });
  EXPECT_DEATH(engine.run(),
               "task \"one\" holds \"sem\", taken in\n  takes_a_then_b\n"
               "and takes it again");
}

}  // namespace
}  // namespace faultline
