// SPDX-License-Identifier: Apache-2.0
//
// vrange(2): what it checks and in which order, which lock it takes, what it answers, by
// version.  What it does to ranges is vrange_test.cc.
#include <gtest/gtest.h>

#include "tests/unit/kernel_model/mm/vrange_machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;
using enum VrangeVersion;

constexpr std::uint64_t kWraps = ~std::uint64_t{0} - 8 * k4K;

struct ErrnoRow {
  const char* what;
  std::uint64_t start, length;
  int mode;
  Errno error;
};
constexpr std::uint64_t kAt = VrangeMachine::kArea.v;
const ErrnoRow kErrnoRows[] = {
    {"start not aligned", kAt + 1, k4K, 0, Errno::kEINVAL},
    {"a length below a page is none", kAt, k4K - 1, 0, Errno::kEINVAL},
    {"no length", kAt, 0, 0, Errno::kEINVAL},
    {"wraps round", kAt, kWraps, 0, Errno::kEINVAL},
    {"start at the task's end", 0x7fff'ffff'f000, k4K, 0, Errno::kEINVAL},
    {"start beyond the task's end", std::uint64_t{1} << 62, k4K, 0, Errno::kEINVAL},
    {"unknown mode", kAt, k4K, 2, Errno::kEINVAL},
    {"negative mode", kAt, k4K, -1, Errno::kEINVAL},
    {"good", kAt, k4K, 0, Errno::kOk},
    {"a length is rounded down", kAt, 2 * k4K - 1, 0, Errno::kOk},
};

TEST(VrangeCall, ChecksItsArguments) {
  for (const VrangeVersion version : {k7, k8, k9, k10, kVma}) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task);
      for (const ErrnoRow& row : kErrnoRows) {
        SCOPED_TRACE(row.what);
        const auto r = sys_vrange(task, *m.process, {row.start}, row.length, row.mode, {});
        EXPECT_EQ(r.error(), row.error);
      }
      EXPECT_EQ(m.ranges(), "0-1");
    });
  }
}

TEST(VrangeCall, IsEnosysOnEveryReleasedKernel) {
  for (const std::string& preset : list_presets()) {
    EXPECT_EQ(load_preset(preset).vrange, kNone);
    Machine m("x86-4k", preset);
    m.run([&](Task& task) {
      EXPECT_EQ(sys_vrange(task, m.process(), {1}, 0, 9, {}).error(), Errno::kENOSYS);
    });
  }
}

TEST(VrangeCall, BehaviorIsNeverLookedAtByV7) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    for (const std::uint64_t behavior : {std::uint64_t{0}, std::uint64_t{1}, ~k4K})
      EXPECT_EQ(
          sys_vrange(task, *m.process, m.page(0), k4K, kVrangeVolatile, {behavior}).value(),
          0U);
  });
}

TEST(VrangeCall, V8TriesThePointerBeforeItChangesAnything) {
  VrangeMachine m(k8);
  m.run([&](Task& task) {
    m.map_area(task);
    int purged = 7;
    EXPECT_EQ(
        sys_vrange(task, *m.process, m.page(0), k4K, kVrangeVolatile, m.page(100), &purged)
            .error(),
        Errno::kEFAULT);
    EXPECT_EQ(m.ranges(), "");
    EXPECT_EQ(purged, 7);
    EXPECT_EQ(
        sys_vrange(task, *m.process, m.page(0), k4K, kVrangeVolatile, m.page(3), &purged)
            .value(),
        k4K);
    EXPECT_EQ(purged, 0);
    EXPECT_EQ(m.draw(4), "...p") << "the pointer's page was written to";
    // Wrong arguments come first.
    EXPECT_EQ(sys_vrange(task, *m.process, m.page(0), k4K, 2, m.page(100), &purged).error(),
              Errno::kEINVAL);
  });
}

TEST(VrangeCall, WithoutMemoryForTheNodeNothingChanges) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task);
    m.play(task, "V4-8");
    PhysMem& phys = m.kernel->phys();
    AllocRequest last;
    last.type = MigrateType::kUnmovable;
    std::vector<Pfn> taken;
    while (const auto page = phys.alloc_pages(last, task.cpu())) taken.push_back(*page);
    // What fits the slab's first page still does: 51 nodes.
    std::uint64_t marked = 0;
    for (std::uint64_t i = 10; i < 63; i += 2) {
      const auto r = m.vrange(task, i, i + 1, kVrangeVolatile);
      marked += r.ok() ? 1 : 0;
    }
    EXPECT_EQ(marked, 27U);
    for (std::uint64_t i = 100; i < 200; i += 2)
      if (const auto r = m.vrange(task, i, i + 1, kVrangeVolatile); r.ok()) {
        ++marked;
      } else {
        EXPECT_EQ(r.error(), Errno::kENOMEM);
      }
    EXPECT_EQ(marked, 50U);
    EXPECT_EQ(m.kernel->mm_shared().vranges().nodes(), 51U);
    // Both modes need a node, even if nothing would be split.
    EXPECT_EQ(m.vrange(task, 4, 8, kVrangeNovolatile).error(), Errno::kENOMEM);
    EXPECT_EQ(m.ranges().substr(0, 3), "4-8");
    for (const Pfn pfn : taken) phys.free_pages(pfn, 0, task.cpu());
    EXPECT_EQ(m.vrange(task, 4, 8, kVrangeNovolatile).value(), 0U);
  });
}

TEST(VrangeCall, V7LooksAtNoVma) {
  VrangeMachine m(k7);
  m.run([&](Task& task) {
    m.map_area(task, 8);
    EXPECT_EQ(sys_mlock(task, *m.process, m.page(0), 4 * k4K), Errno::kOk);
    EXPECT_EQ(m.vrange(task, 0, 8, 0).value(), 0U) << "locked";
    EXPECT_EQ(m.vrange(task, 100, 200, 0).value(), 0U) << "a hole";
    EXPECT_EQ(m.ranges(), "0-8 100-200");
  });
}

TEST(VrangeCall, V8StopsAtLockedMemoryAndStepsOverHoles) {
  VrangeMachine m(k8);
  m.run([&](Task& task) {
    m.map_area(task, 16);
    EXPECT_EQ(sys_munmap(task, *m.process, m.page(4), 2 * k4K), Errno::kOk);
    EXPECT_EQ(sys_mlock(task, *m.process, m.page(10), 2 * k4K), Errno::kOk);
    EXPECT_EQ(m.vrange(task, 0, 8, 0).value(), 8 * k4K);
    EXPECT_EQ(m.ranges(), "0-4 6-8");
    EXPECT_EQ(m.vrange(task, 0, 16, 0).value(), 10 * k4K) << "short, up to the locked VMA";
    EXPECT_EQ(m.ranges(), "0-4 6-10");
    EXPECT_EQ(m.vrange(task, 10, 16, 0).value(), 0U) << "nothing done, no error";
    EXPECT_EQ(m.vrange(task, 14, 20, 0).value(), 2 * k4K);
  });
}

TEST(VrangeCall, TheVmaVariantSplitsVmasAndRefusesHoles) {
  VrangeMachine m(kVma);
  m.run([&](Task& task) {
    m.map_area(task, 16);
    const std::size_t before = m.process->mm().vmas.size();
    m.play(task, "V2-6=0");
    EXPECT_EQ(m.process->mm().vmas.size(), before + 2);
    m.play(task, "V8-10 V6-8");
    EXPECT_EQ(m.ranges(), "2-10") << "VMAs merge, so adjacent ranges are one";
    EXPECT_EQ(m.process->mm().vmas.size(), before + 2);
    m.play(task, "N0-16=0");
    EXPECT_EQ(m.process->mm().vmas.size(), before);
    EXPECT_EQ(m.vrange(task, 12, 20, 0).error(), Errno::kENOMEM);
    EXPECT_EQ(sys_mlock(task, *m.process, m.page(0), k4K), Errno::kOk);
    EXPECT_EQ(m.vrange(task, 0, 1, 0).error(), Errno::kEINVAL);
  });
}

TEST(VrangeCall, TheVmaVariantTakesMmapLockForWriteTheTreeNot) {
  const auto writes = [](VrangeVersion version) {
    VrangeMachine m(version);
    m.run([&](Task& task) {
      m.map_area(task);
      const auto& stats = m.engine.locks().of("mmap_lock");
      const auto& own = m.engine.locks().of("mm->v_lock");
      const std::uint64_t before = stats.write.acquired, reads = stats.read.acquired;
      const std::uint64_t trees = own.write.acquired;
      m.play(task, "V0-8 N0-8");
      EXPECT_EQ(stats.write.acquired - before, version == kVma ? 2U : 0U);
      EXPECT_EQ(stats.read.acquired - reads, version >= k8 ? 2U : 0U);
      EXPECT_EQ(own.write.acquired - trees, version == kVma ? 0U : 2U);
    });
  };
  for (const VrangeVersion version : {k7, k8, k10, kVma}) writes(version);
}

TEST(VrangeCall, TightMemoryIsReportedIfThatWasBuilt) {
  for (const bool reports : {false, true}) {
    VrangeMachine m(k7, [&](KernelConfig& c) { c.vrange_reports_pressure = reports; });
    m.run([&](Task& task) {
      m.map_area(task);
      m.play(task, "V0-8=0");
      PhysMem& phys = m.kernel->phys();
      std::vector<Pfn> taken;
      AllocRequest request;
      request.type = MigrateType::kUnmovable;
      while (phys.nr_free_pages(0) >= phys.watermarks(0).low)
        taken.push_back(*phys.alloc_pages(request, task.cpu()));
      m.play(task, reports ? "V0-8=1" : "V0-8=0");
      m.play(task, "N0-8=0");
      for (const Pfn pfn : taken) phys.free_pages(pfn, 0, task.cpu());
    });
  }
}

}  // namespace
}  // namespace faultline::kernel
