// SPDX-License-Identifier: Apache-2.0
//
// run_child on both platforms, and what the allocators are in a child.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "allocator/jemalloc/jemalloc.h"
#include "allocator/platform/native.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;

// Calls `body` with a platform of either world.
struct OnTheModel {
  using P = Model;
  template <typename Body>
  static void run(Body body) {
    modelled::Machine machine;
    machine.run([&](Model& p) { body(p); });
  }
};
struct Natively {
  using P = Native;
  template <typename Body>
  static void run(Body body) {
    NativeProcess process;
    Native p(process);
    body(p);
  }
};

template <typename World>
class Fork : public testing::Test {};
using Worlds = testing::Types<OnTheModel, Natively>;
TYPED_TEST_SUITE(Fork, Worlds);

template <typename P>
Addr map(P& p) {
  const SysValue r = p.mmap(0, kBytes, sys::kProtRead | sys::kProtWrite,
                            sys::kMapPrivate | sys::kMapAnonymous);
  EXPECT_EQ(r.error, 0);
  return r.value;
}

TYPED_TEST(Fork, EachHasItsOwnBytesFromThenOn) {
  using P = typename TypeParam::P;
  TypeParam::run([](P& p) {
    Addr at = map(p);
    p.store(at, std::uint64_t{1});
    p.store(at + kBytes / 2, std::uint64_t{1});
    const SysValue status = p.run_child(
        [](P& child, void* arg) {
          const Addr here = *static_cast<Addr*>(arg);
          if (child.template load<std::uint64_t>(here) != 1) return 10;
          child.store(here, std::uint64_t{2});
          child.usleep(2000);  // the parent has written meanwhile
          return child.template load<std::uint64_t>(here + kBytes / 2) == 1 ? 0 : 11;
        },
        [](P& parent, void* arg) {
          const Addr here = *static_cast<Addr*>(arg);
          parent.store(here + kBytes / 2, std::uint64_t{3});
        },
        &at);
    EXPECT_EQ(status.error, 0);
    EXPECT_EQ(status.value, 0u);
    EXPECT_EQ(p.template load<std::uint64_t>(at), 1u);
    EXPECT_EQ(p.template load<std::uint64_t>(at + kBytes / 2), 3u);
  });
}

TYPED_TEST(Fork, MappingsAndTheBreakAreTheChildsOwn) {
  using P = typename TypeParam::P;
  TypeParam::run([](P& p) {
    struct Places {
      Addr at, end;
    } places{map(p), p.sbrk(0).value};
    const SysValue status = p.run_child(
        [](P& child, void* arg) {
          const auto& here = *static_cast<Places*>(arg);
          if (child.munmap(here.at, kBytes) != 0) return 10;
          if (child.sbrk(0).value != here.end) return 11;
          return child.sbrk(1 << 16).ok() ? 7 : 12;
        },
        [](P&, void*) {}, &places);
    EXPECT_EQ(status.value, 7u);  // the child's status
    EXPECT_EQ(p.sbrk(0).value, places.end);
    p.store(places.at, std::uint64_t{5});
    EXPECT_EQ(p.template load<std::uint64_t>(places.at), 5u);
  });
}

TYPED_TEST(Fork, AChildThatIsKilledHasAShellsStatus) {
  using P = typename TypeParam::P;
  if constexpr (std::is_same_v<P, Native>) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the sanitizer catches the signal";
#endif
  }
  TypeParam::run([](P& p) {
    Addr at = map(p);
    p.mprotect(at, kBytes, sys::kProtNone);
    const SysValue status = p.run_child(
        [](P& child, void* arg) {
          child.store(*static_cast<Addr*>(arg), std::uint64_t{1});
          return 0;
        },
        [](P&, void*) {}, &at);
    EXPECT_EQ(status.error, 0);
    EXPECT_EQ(status.value, 128u + SIGSEGV);
  });
}

// A lock that the parent holds is free in the child once it is reset, and held here.
TYPED_TEST(Fork, LocksAreResetInTheChild) {
  using P = typename TypeParam::P;
  TypeParam::run([](P& p) {
    Addr at = map(p);
    p.lock(p.lock_at(at, "test lock"));
    const SysValue status = p.run_child(
        [](P& child, void* arg) {
          auto& lock = child.lock_at(*static_cast<Addr*>(arg), "test lock");
          child.reset_lock(lock);
          return child.try_lock(lock) ? 0 : 10;
        },
        [](P&, void*) {}, &at);
    EXPECT_EQ(status.value, 0u);
    EXPECT_FALSE(p.try_lock(p.lock_at(at, "test lock")));
    p.unlock(p.lock_at(at, "test lock"));
  });
}

// Threads leave arenas with free and used blocks behind; then a child uses the heap.
template <typename P, typename Heap>
struct Family {
  Heap& heap;
  Heap copy;
  Addr kept;
};
template <typename P, typename Heap>
void heap_survives(P& p, Heap& heap) {
  p.run_threads(
      4,
      [](P& t, unsigned, void* arg) {
        auto& h = *static_cast<Heap*>(arg);
        for (unsigned i = 0; i < 100; ++i) {
          const Addr a = h.malloc(t, 1000), b = h.malloc(t, 5000);
          t.store(a, std::uint64_t{i});
          h.free(t, b);
        }
      },
      &heap);
  const Addr kept = heap.malloc(p, 3000);
  p.store(kept, std::uint64_t{42});
  heap.fork_lock(p);
  Family<P, Heap> family{heap, Heap(heap), kept};
  const SysValue status = p.run_child(
      [](P& child, void* arg) {
        auto& f = *static_cast<Family<P, Heap>*>(arg);
        f.copy.fork_unlock_child(child);
        if (child.template load<std::uint64_t>(f.kept) != 42) return 10;
        f.copy.free(child, f.kept);
        for (unsigned i = 0; i < 1000; ++i) {
          const Addr a = f.copy.malloc(child, 16 + 37 * i);
          if (a == 0) return 11;
          child.store(a, std::uint64_t{i});
          if (i % 3 == 0) f.copy.free(child, a);
        }
        child.run_threads(
            3,
            [](P& t, unsigned, void* h) {
              auto& copy = *static_cast<Heap*>(h);
              for (unsigned i = 0; i < 100; ++i) copy.free(t, copy.malloc(t, 100 * i));
            },
            &f.copy);
        return 0;
      },
      [](P& parent, void* arg) {
        auto& f = *static_cast<Family<P, Heap>*>(arg);
        f.heap.fork_unlock_parent(parent);
        for (unsigned i = 0; i < 500; ++i) f.heap.malloc(parent, 700);
      },
      &family);
  EXPECT_EQ(status.value, 0u);
  EXPECT_EQ(p.template load<std::uint64_t>(kept), 42u);
  heap.free(p, kept);
  EXPECT_NE(heap.malloc(p, 3000), 0u);
}

TYPED_TEST(Fork, GlibcsHeapGoesOnInBoth) {
  using P = typename TypeParam::P;
  TypeParam::run([](P& p) {
    Ptmalloc<P> heap(p, *find_release("2.36"));
    heap_survives(p, heap);
  });
}

TYPED_TEST(Fork, JemallocsHeapGoesOnInBoth) {
  using P = typename TypeParam::P;
  TypeParam::run([](P& p) {
    Jemalloc<P> heap(p);
    heap_survives(p, heap);
  });
}

// What a child sets is its own affair.
TEST(ForkOnTheModel, SettingsOfTheChildAreItsOwn) {
  modelled::Machine machine;
  machine.run([](Model& p) {
    using Heap = Ptmalloc<Model>;
    Heap heap(p, *find_release("2.36"));
    heap.malloc(p, 1);
    heap.fork_lock(p);
    Family<Model, Heap> family{heap, Heap(heap), 0};
    p.run_child(
        [](Model& child, void* arg) {
          auto& f = *static_cast<Family<Model, Heap>*>(arg);
          f.copy.fork_unlock_child(child);
          f.copy.mallopt(child, Param::kMmapThreshold, 4096);
          return 0;
        },
        [](Model& parent, void* arg) {
          static_cast<Family<Model, Heap>*>(arg)->heap.fork_unlock_parent(parent);
        },
        &family);
    const Addr at = heap.malloc(p, 64 << 10);
    EXPECT_LT(at, p.sbrk(0).value);  // not mapped on its own
  });
}

// The counters of a page that both have: shared, copied by the first that writes, and then
// the other's alone.
TEST(ForkOnTheModel, PagesAreCopiedByWhoWritesFirst) {
  modelled::Machine machine;
  machine.run([&](Model& p) {
    Addr at = map(p);
    p.touch(at, kBytes, Touch::kWrite);
    const std::uint64_t before = machine.process.minflt;
    const SysValue status = p.run_child(
        [](Model& child, void* arg) {
          child.touch(*static_cast<Addr*>(arg), kBytes / 2, Touch::kWrite);
          return 0;
        },
        [](Model&, void*) {}, &at);
    EXPECT_EQ(status.value, 0u);
    EXPECT_EQ(machine.kernel.processes().back()->minflt, kBytes / 2 / 4096);
    p.touch(at, kBytes, Touch::kWrite);
    EXPECT_EQ(machine.process.minflt - before, kBytes / 4096);
  });
}

}  // namespace
}  // namespace faultline::alloc
