// SPDX-License-Identifier: Apache-2.0
// What the engine costs the host: one item is one operation of the model.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "sim/bandwidth.h"
#include "sim/locks.h"

namespace faultline {
namespace {

MachineShape cpus(int n) {
  return {.node_of_cpu = std::vector<int>(static_cast<std::size_t>(n)),
          .node_distance = {}};
}

// Runs `step` in one task for as long as the benchmark wants.
template <typename Step>
void in_one_task(benchmark::State& state, Engine& engine, Step step) {
  engine.spawn("bench", [&](Task& t) {
    for (auto _ : state) step(t);
  });
  engine.run();
  state.SetItemsProcessed(state.iterations());
}

constexpr Centre kOuter{"outer"}, kInner{"inner", true};

void charge(benchmark::State& state) {
  Engine engine(cpus(1), {});
  in_one_task(state, engine, [](Task& t) { t.charge(Duration::ps(417)); });
}
BENCHMARK(charge);

void scope_and_leaf(benchmark::State& state) {
  Engine engine(cpus(1), {});
  in_one_task(state, engine, [](Task& t) {
    const Scope scope(t, kOuter);
    t.charge(kInner, Duration::ps(417));
  });
}
BENCHMARK(scope_and_leaf);

void sync_alone(benchmark::State& state) {
  Engine engine(cpus(1), {});
  in_one_task(state, engine, [](Task& t) {
    t.charge(Duration::ps(417));
    t.sync();
  });
}
BENCHMARK(sync_alone);

template <typename Lock>
void charge_sync_lock_unlock(benchmark::State& state) {
  Engine engine(cpus(1), {});
  Lock lock(engine, engine.locks().of("l"), {.atomic = Duration::ns(10), .handover = {}});
  in_one_task(state, engine, [&](Task& t) {
    t.charge(Duration::ns(30));
    t.sync();
    lock.lock(t);
    lock.unlock(t);
  });
}
BENCHMARK(charge_sync_lock_unlock<SpinLock>)->Name("charge_sync_lock_unlock/spinlock");
BENCHMARK(charge_sync_lock_unlock<Mutex>)->Name("charge_sync_lock_unlock/mutex");

void charge_sync_down_up_read(benchmark::State& state) {
  Engine engine(cpus(1), {});
  RwSem sem(engine, engine.locks().of("l"), {.atomic = Duration::ns(10), .handover = {}},
            RwSemRules::k5_3);
  in_one_task(state, engine, [&](Task& t) {
    t.charge(Duration::ns(30));
    t.sync();
    sem.down_read(t);
    sem.up_read(t);
  });
}
BENCHMARK(charge_sync_down_up_read);

// Many tasks, each earlier than the others in turn: every sync is an event and a fiber
// switch.
void switch_at_every_sync(benchmark::State& state) {
  const int tasks = static_cast<int>(state.range(0));
  const std::int64_t rounds = 1'000'000 / tasks;
  for (auto _ : state) {
    Engine engine(cpus(tasks), {});
    for (int i = 0; i < tasks; ++i)
      engine.spawn("t" + std::to_string(i), [rounds](Task& t) {
        for (std::int64_t n = 0; n < rounds; ++n) {
          t.charge(Duration::ns(10));
          t.sync();
        }
      });
    engine.run();
  }
  state.SetItemsProcessed(state.iterations() * rounds * tasks);
}
BENCHMARK(switch_at_every_sync)
    ->Arg(2)
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

void timer_events(benchmark::State& state) {
  constexpr int kEvents = 100'000;
  for (auto _ : state) {
    Engine engine(cpus(1), {});
    for (int i = 0; i < kEvents; ++i)
      engine.at(Time(Duration::ns((i * 7919) % 100'003)), [] {});
    engine.spawn("t", [](Task& t) { t.work(Duration::ms(1)); });
    engine.run();
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
}
BENCHMARK(timer_events)->Unit(benchmark::kMillisecond);

void contended_spinlock(benchmark::State& state) {
  const int tasks = static_cast<int>(state.range(0));
  constexpr int kTotal = 200'000;
  for (auto _ : state) {
    Engine engine(cpus(tasks), {});
    SpinLock lock(engine, engine.locks().of("l"),
                  {.atomic = Duration::ns(10), .handover = Duration::ns(90)});
    for (int i = 0; i < tasks; ++i)
      engine.spawn("t", [&](Task& t) {
        for (int n = 0; n < kTotal / tasks; ++n) {
          lock.lock(t);
          t.charge(Duration::ns(200));
          lock.unlock(t);
        }
      });
    engine.run();
  }
  state.SetItemsProcessed(state.iterations() * kTotal);
}
BENCHMARK(contended_spinlock)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

void contended_rwsem(benchmark::State& state) {
  constexpr int kTasks = 60, kRounds = 2'000;
  const auto rules = state.range(0) != 0 ? RwSemRules::k5_3 : RwSemRules::k4_15;
  for (auto _ : state) {
    Engine engine(cpus(kTasks), {.wakeup_latency = Duration::us(2)});
    RwSem sem(engine, engine.locks().of("l"),
              {.atomic = Duration::ns(10), .handover = Duration::ns(90)}, rules);
    for (int i = 0; i < kTasks; ++i)
      engine.spawn("t", [&, i](Task& t) {
        for (int n = 0; n < kRounds; ++n) {
          if ((n + i) % 16 == 0) {
            sem.down_write(t);
            t.charge(Duration::us(1));
            sem.up_write(t);
          } else {
            sem.down_read(t);
            t.charge(Duration::us(3));
            sem.up_read(t);
          }
        }
      });
    engine.run();
  }
  state.SetItemsProcessed(state.iterations() * kTasks * kRounds);
}
BENCHMARK(contended_rwsem)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void shared_bandwidth(benchmark::State& state) {
  const int tasks = static_cast<int>(state.range(0));
  constexpr int kRounds = 1'000;
  for (auto _ : state) {
    Engine engine(cpus(tasks), {});
    SharedBandwidth memory(engine, 12'000'000'000);
    for (int i = 0; i < tasks; ++i)
      engine.spawn("t", [&, i](Task& t) {
        t.charge(Duration::ns(37 * i));
        for (int n = 0; n < kRounds; ++n) {
          memory.transfer(t, 65'536, 5'000'000'000);
          t.charge(Duration::ns(500));
        }
      });
    engine.run();
  }
  state.SetItemsProcessed(state.iterations() * tasks * kRounds);
}
BENCHMARK(shared_bandwidth)->Arg(1)->Arg(60)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace faultline
