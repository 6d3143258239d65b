// SPDX-License-Identifier: Apache-2.0
//
// Who waits for whom: mmap_lock and the per-VMA locks as the calls take them.
#include <gtest/gtest.h>

#include "kernel_model/proc/vmstat.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel::testing {
namespace {

constexpr Duration kLong = Duration::ms(10);

Time at(Duration d) {
  return Time{} + d;
}

TEST(MmapLock, AReaderDelaysAnMmap) {
  Machine m;
  Time mapped;
  m.run(
      [&](Task& task) {
        m.mm().mmap_read_lock(task);
        task.work(kLong);
        m.mm().mmap_read_unlock(task);
      },
      [&](Task& task) {
        Thread t(task, m);
        task.charge(Duration::us(1));
        t.mmap(m.page());
        mapped = task.now();
      });
  EXPECT_GE(mapped, at(kLong));
}

TEST(MmapLock, ReadersDoNotDelayEachOther) {
  Machine m;
  Time done;
  m.run(
      [&](Task& task) {
        m.mm().mmap_read_lock(task);
        task.work(kLong);
        m.mm().mmap_read_unlock(task);
      },
      [&](Task& task) {
        Thread t(task, m);
        task.charge(Duration::us(1));
        EXPECT_EQ(t.madvise(m.mm().start_brk, m.page(), Madvise::kDontneed), Errno::kOk);
        done = task.now();
      });
  EXPECT_LT(done, at(kLong));
}

// A munmap of 64 MiB of touched pages; a reader that comes in the middle of it.
struct MunmapRace {
  Time munmap_done, reader_in;
};
MunmapRace munmap_race(std::string_view preset) {
  Machine m("x86-4k", preset);
  MunmapRace race;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr area = t.mmap(64 * kMiB);
    EXPECT_EQ(user_touch(task, m.process(), area, 64 * kMiB, m.page(), Access::kWrite),
              Signal::kNone);
    m.engine().spawn(
        "reader",
        [&m, &race](Task& reader) {
          reader.charge(Duration::us(20));
          m.mm().mmap_read_lock(reader);
          race.reader_in = reader.now();
          m.mm().mmap_read_unlock(reader);
        },
        task.now());
    EXPECT_EQ(t.munmap(area, 64 * kMiB), Errno::kOk);
    race.munmap_done = task.now();
  });
  return race;
}

TEST(MmapLock, MunmapKeepsReadersOutToItsEndBefore420) {
  const MunmapRace race = munmap_race("4.15");
  EXPECT_GE(race.reader_in, race.munmap_done);
}

TEST(MmapLock, MunmapLetsReadersInAsSoonAsTheVmaIsGone) {
  const MunmapRace race = munmap_race("6.1");
  EXPECT_LT(race.reader_in, race.munmap_done);
}

// A fault is inside the VMA `at`; meanwhile another thread calls `op` on the area.
template <typename Op>
Time with_fault_inside(std::string_view preset, Op op) {
  Machine m("x86-4k", preset);
  Time done;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr area = t.mmap(8 * m.page());
    const Time start = task.now();
    m.engine().spawn(
        "fault",
        [&m, area](Task& fault) {
          Vma& vma = *m.mm().vma_at(area);
          EXPECT_TRUE(m.mm().vma_start_read(fault, vma));
          fault.work(kLong);
          m.mm().vma_end_read(fault, vma);
        },
        start);
    task.charge(Duration::us(5));
    task.sync();
    op(t, m, area);
    done = Time{} + (task.now() - start);
  });
  return done;
}

TEST(PerVmaLock, AChangeOfTheVmaWaitsForTheFaultInside) {
  EXPECT_GE(with_fault_inside(
                "6.5", [](Thread& t, Machine& m, VirtAddr a) { t.munmap(a, m.page()); }),
            at(kLong));
  EXPECT_GE(
      with_fault_inside("6.5", [](Thread& t, Machine& m,
                                  VirtAddr a) { t.mprotect(a, m.page(), kProtRead); }),
      at(kLong));
  EXPECT_GE(with_fault_inside("6.5",
                              [](Thread& t, Machine& m, VirtAddr a) {
                                t.madvise(a, m.page(), Madvise::kHugepage);
                              }),
            at(kLong));
  EXPECT_GE(
      with_fault_inside("6.5", [](Thread& t, Machine& m, VirtAddr) { t.mmap(m.page()); }),
      at(kLong))
      << "an mmap that merges with it";
}

TEST(PerVmaLock, OtherVmasDoNotWait) {
  EXPECT_LT(with_fault_inside("6.5", [](Thread& t, Machine& m,
                                        VirtAddr) { t.mmap(m.page(), kProtRead); }),
            at(kLong));
  EXPECT_LT(with_fault_inside("6.5",
                              [](Thread& t, Machine& m, VirtAddr a) {
                                t.madvise(a, m.page(), Madvise::kDontneed);
                              }),
            at(kLong))
      << "DONTNEED takes mmap_lock for read only";
}

TEST(PerVmaLock, AWriteLockedVmaRefusesFaultsUntilMmapLockIsReleased) {
  Machine m("x86-4k", "6.5");
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr area = t.mmap(m.page());
    Vma& vma = *m.mm().vma_at(area);
    m.mm().mmap_write_lock(task);
    m.mm().vma_start_write(task, vma);
    EXPECT_FALSE(m.mm().vma_start_read(task, vma));
    m.mm().mmap_write_downgrade(task);
    EXPECT_TRUE(m.mm().vma_start_read(task, vma));
    m.mm().vma_end_read(task, vma);
    m.mm().mmap_read_unlock(task);
  });
}

TEST(PerVmaLock, IsOnlyThereWhereVersionAndArchitectureHaveIt) {
  EXPECT_TRUE(Machine("x86-4k", "6.5").mm().has_vma_locks());
  EXPECT_FALSE(Machine("x86-4k", "6.1").mm().has_vma_locks());
  EXPECT_FALSE(Machine("mips64-16k", "6.18").mm().has_vma_locks());
  EXPECT_TRUE(Machine("loongarch64-16k", "6.18").mm().has_vma_locks());
  EXPECT_FALSE(Machine("loongarch64-16k", "6.12").mm().has_vma_locks());
}

TEST(PerVmaLock, DontneedInOneVmaNeedsNoMmapLockFrom618) {
  const auto waits = [](std::string_view preset) {
    Machine m("x86-4k", preset);
    Time done;
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr area = t.mmap(2 * m.page());
      const Time start = task.now();
      m.engine().spawn(
          "writer",
          [&m](Task& writer) {
            m.mm().mmap_write_lock(writer);
            writer.work(kLong);
            m.mm().mmap_write_unlock(writer);
          },
          start);
      task.charge(Duration::us(5));
      EXPECT_EQ(t.madvise(area, m.page(), Madvise::kDontneed), Errno::kOk);
      done = Time{} + (task.now() - start);
    });
    return done >= at(kLong);
  };
  EXPECT_TRUE(waits("6.12"));
  EXPECT_FALSE(waits("6.18"));
}

// The counters of the first and the second fault of a mapping.
struct VmaLockCounts {
  std::uint64_t success, abort, retry;
  bool operator==(const VmaLockCounts&) const = default;
};
void PrintTo(const VmaLockCounts& c, std::ostream* out) {
  *out << c.success << " successes, " << c.abort << " aborts, " << c.retry << " retries";
}
VmaLockCounts counts(Machine& m) {
  const Vmstat& v = m.kernel().vmstat();
  return {v.vma_lock_success, v.vma_lock_abort, v.vma_lock_retry};
}

// Up to 6.11 a fault that has to make the VMA's anon_vma needs mmap_lock.
TEST(PerVmaLock, TheFirstFaultOfAMappingByVersion) {
  const VmaLockCounts aborts{1, 1, 0}, succeeds{2, 0, 0};
  for (const auto& [preset, expected] : {std::pair{"6.1", VmaLockCounts{0, 0, 0}},
                                         {"6.5", aborts},
                                         {"6.8", aborts},
                                         {"6.12", succeeds},
                                         {"6.18", succeeds}}) {
    Machine m("x86-4k", preset);
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr area = t.mmap(2 * m.page());
      EXPECT_EQ(t.write(area), Signal::kNone);
      EXPECT_EQ(t.write(area + m.page()), Signal::kNone);
    });
    EXPECT_EQ(counts(m), expected) << preset;
  }
}

// 6.12: it tries for mmap_lock, and comes again under it if somebody has it.
TEST(PerVmaLock, TheFirstFaultIsRetriedIfMmapLockIsTaken) {
  Machine m("x86-4k", "6.12");
  Time done;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr area = t.mmap(2 * m.page());
    const Time start = task.now();
    m.engine().spawn(
        "writer",
        [&m](Task& writer) {
          m.mm().mmap_write_lock(writer);
          writer.work(kLong);
          m.mm().mmap_write_unlock(writer);
        },
        start);
    task.charge(Duration::us(5));
    EXPECT_EQ(t.write(area), Signal::kNone);
    done = Time{} + (task.now() - start);
  });
  EXPECT_GE(done, at(kLong));
  EXPECT_EQ(counts(m), (VmaLockCounts{0, 0, 1}));
}

// The second fault needs nothing but the VMA's lock, whoever has mmap_lock.
TEST(PerVmaLock, LaterFaultsDoNotWaitForMmapLock) {
  for (const auto& [preset, waits] :
       {std::pair{"6.1", true}, {"6.5", false}, {"6.8", false}, {"6.18", false}}) {
    Machine m("x86-4k", preset);
    Time done;
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr area = t.mmap(2 * m.page());
      EXPECT_EQ(t.write(area), Signal::kNone);
      const Time start = task.now();
      m.engine().spawn(
          "writer",
          [&m](Task& writer) {
            m.mm().mmap_write_lock(writer);
            writer.work(kLong);
            m.mm().mmap_write_unlock(writer);
          },
          start);
      task.charge(Duration::us(5));
      EXPECT_EQ(t.write(area + m.page()), Signal::kNone);
      done = Time{} + (task.now() - start);
    });
    EXPECT_EQ(done >= at(kLong), waits) << preset;
  }
}

// 6.4-6.7 leave all but anonymous mappings to mmap_lock.
TEST(PerVmaLock, SharedMappingsUseItFrom68On) {
  for (const auto& [preset, expected] :
       {std::pair{"6.5", VmaLockCounts{0, 1, 0}}, {"6.8", VmaLockCounts{1, 0, 0}}}) {
    Machine m("x86-4k", preset);
    m.run([&](Task& task) {
      Thread t(task, m);
      const VirtAddr area =
          t.mmap_at({}, m.page(), kRw, kMapShared | kMapAnonymous).value();
      EXPECT_EQ(t.read(area), Signal::kNone);
    });
    EXPECT_EQ(counts(m), expected) << preset;
  }
}

}  // namespace
}  // namespace faultline::kernel::testing
