// SPDX-License-Identifier: Apache-2.0
//
// Shared anonymous memory and file mappings: fault-around, copy on write, who keeps pages.
#include <gtest/gtest.h>

#include "kernel_model/mm/page_cache.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/smaps.h"
#include "kernel_model/proc/vmstat.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel {
namespace {

using namespace testing;

constexpr unsigned kShared = kMapShared | kMapAnonymous;
constexpr std::uint64_t k4K = 4096, k64K = 65536;

FileRef cached_file(Thread& t, Machine& m, FileKind kind, std::uint64_t bytes) {
  auto file = std::make_shared<File>(m.kernel(), kind, "/tmp/f", 0);
  EXPECT_EQ(sys_pwrite(t.task, t.process, *file, 0, bytes).value(), bytes);
  return file;
}
VirtAddr map(Thread& t, const FileRef& file, std::uint64_t bytes, unsigned flags) {
  const auto at = sys_mmap_file(t.task, t.process, {}, bytes, kRw, flags, file, 0);
  EXPECT_TRUE(at.ok());
  return at.value();
}

TEST(Files, SharedAnonymousPagesStayWhenTheyAreUnmapped) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t free = m.kernel().phys().free_pages_total();
    const std::uint64_t tables = m.mm().pages().pgtables_bytes();
    const VirtAddr p = t.mmap(4 * k4K, kRw, kShared);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(t.write(p + i * k4K), Signal::kNone);
    EXPECT_EQ(m.mm().rss_shmem, 4U);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 4);
    EXPECT_EQ(smaps_rollup(m.mm()).anonymous, m.mm().rss_anon * k4K);
    EXPECT_EQ(t.madvise(p, 4 * k4K, Madvise::kDontneed), Errno::kOk);
    EXPECT_EQ(m.mm().rss_shmem, 0U);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 4);  // the file has them still
    const std::uint64_t faults = m.process().minflt;
    EXPECT_EQ(t.read(p), Signal::kNone);
    EXPECT_EQ(m.process().minflt, faults + 1);
    EXPECT_EQ(m.mm().rss_shmem, 4U);  // fault-around found all of them
    EXPECT_EQ(t.write(p + k4K), Signal::kNone);
    EXPECT_EQ(m.process().minflt, faults + 1);  // shmem maps writable at once
    EXPECT_EQ(t.munmap(p, 4 * k4K), Errno::kOk);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 0);
    EXPECT_EQ(m.mm().pages().pgtables_bytes(), tables);
    EXPECT_EQ(m.kernel().phys().free_pages_total(), free);
  });
}

TEST(Files, ForkSharesThePagesOfSharedMemory) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(k4K, kRw, kShared);
    EXPECT_EQ(t.write(p), Signal::kNone);
    Process& child = *sys_fork(task, m.process()).value();
    EXPECT_EQ(child.mm().rss_shmem, 0U);  // found again by a fault
    EXPECT_EQ(user_access(task, child, p, Access::kWrite), Signal::kNone);
    EXPECT_EQ(child.mm().pages().look(p).pfn, m.mm().pages().look(p).pfn);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 1);
    sys_exit_group(task, child);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 1);
  });
}

TEST(Files, ReadFaultsMapTheCachedPagesAround) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const FileRef file = cached_file(t, m, FileKind::kShmem, 4 * k64K);
    const VirtAddr p = map(t, file, 4 * k64K, kMapPrivate);
    const VirtAddr aligned{(p.v + k64K - 1) & ~(k64K - 1)};
    EXPECT_EQ(t.read(aligned + 5 * k4K), Signal::kNone);
    EXPECT_EQ(m.mm().rss_shmem, 16U);
    EXPECT_EQ(m.mm().pages().look(aligned).kind, PageView::kBase);
    EXPECT_EQ(m.mm().pages().look(aligned + k64K).kind, PageView::kNone);
  });
}

TEST(Files, WithoutFaultAroundEachPageFaults) {
  Machine m("x86-4k", "6.1", [](KernelConfig& c) { c.fault_around_bytes = k4K; });
  m.run([&](Task& task) {
    Thread t(task, m);
    const FileRef file = cached_file(t, m, FileKind::kShmem, k64K);
    const VirtAddr p = map(t, file, k64K, kMapPrivate);
    const std::uint64_t before = m.process().minflt;
    for (int i = 0; i < 16; ++i) EXPECT_EQ(t.read(p + i * k4K), Signal::kNone);
    EXPECT_EQ(m.process().minflt, before + 16);
  });
}

TEST(Files, PrivateWritesCopyAndLeaveTheFileAlone) {
  Machine m;
  m.kernel().watch_contents();
  m.run([&](Task& task) {
    Thread t(task, m);
    const FileRef file = cached_file(t, m, FileKind::kRegular, 2 * k4K);
    const VirtAddr p = map(t, file, 2 * k4K, kMapPrivate);
    const std::uint64_t anon = m.mm().rss_anon, mapped = m.mm().rss_file;
    EXPECT_EQ(t.read(p), Signal::kNone);
    EXPECT_EQ(m.mm().rss_file, mapped + 2);
    EXPECT_EQ(t.write(p), Signal::kNone);  // do_wp_page()
    EXPECT_EQ(m.mm().rss_file, mapped + 1);
    EXPECT_EQ(m.mm().rss_anon, anon + 1);
    EXPECT_NE(m.mm().pages().look(p).pfn, *file->find(0));
    EXPECT_EQ(m.kernel().vmstat().nr_file_pages, 2);
    EXPECT_EQ(t.munmap(p, 2 * k4K), Errno::kOk);
  });
  EXPECT_EQ(m.kernel().vmstat().nr_file_pages, 0);  // nobody has it any more
}

TEST(Files, WhatIsNotCachedIsReadFromItsDevice) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const auto file =
        std::make_shared<File>(m.kernel(), FileKind::kRegular, "/f", 64 * k4K);
    const VirtAddr p = map(t, file, 64 * k4K, kMapPrivate);
    const Time before = task.now();
    EXPECT_EQ(t.read(p + 20 * k4K), Signal::kNone);
    EXPECT_EQ(m.process().majflt, 1U);
    EXPECT_GE(task.now() - before, m.kernel().config().disk_read);
    EXPECT_EQ(file->cached().size(), 32U);  // 128 KiB around it
    EXPECT_EQ(file->cached().begin()->first, 4U);
    const std::uint64_t minor = m.process().minflt;
    EXPECT_EQ(t.read(p + 32 * k4K), Signal::kNone);
    EXPECT_EQ(m.process().majflt, 1U);
    EXPECT_EQ(m.process().minflt, minor + 1);
  });
}

TEST(Files, BeyondTheEndIsSigbus) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(k4K, kRw, kShared);
    const auto q = t.mremap(p, k4K, 2 * k4K, kMremapMaymove);
    ASSERT_TRUE(q.ok());
    EXPECT_EQ(t.write(q.value()), Signal::kNone);
    EXPECT_EQ(t.write(q.value() + k4K), Signal::kBus);
  });
}

TEST(Files, MadvRemovePunchesAHoleForAll) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr p = t.mmap(4 * k4K, kRw, kShared);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(t.write(p + i * k4K), Signal::kNone);
    EXPECT_EQ(t.madvise(p + k4K, 2 * k4K, Madvise::kRemove), Errno::kOk);
    EXPECT_EQ(m.mm().rss_shmem, 2U);
    EXPECT_EQ(m.kernel().vmstat().nr_shmem, 2);
  });
}

TEST(Files, SharedMemoryIsChargedUntilItGoes) {
  Machine m;
  m.run([&](Task& task) {
    Thread t(task, m);
    const std::uint64_t before = m.kernel().committed_pages;
    const VirtAddr p = t.mmap(k64K, kRw, kShared);
    EXPECT_EQ(m.kernel().committed_pages, before + 16);
    EXPECT_EQ(t.munmap(p, k4K), Errno::kOk);
    EXPECT_EQ(m.kernel().committed_pages, before + 16);
    EXPECT_EQ(t.munmap(p + k4K, k64K - k4K), Errno::kOk);
    EXPECT_EQ(m.kernel().committed_pages, before);
  });
}

TEST(Files, S390PlacesFilesOnTheirColour) {
  Machine m("s390x");
  m.run([&](Task& task) {
    Thread t(task, m);
    EXPECT_EQ(t.mmap(k4K, kRw, kShared).v % (512 << 10), 0U);
    EXPECT_NE(t.mmap(k4K).v % (512 << 10), 0U);
  });
}

TEST(Files, RegularFilesLieOnHugePageBoundaries) {
  Machine m("x86-4k", "6.18");
  m.run([&](Task& task) {
    Thread t(task, m);
    const FileRef file = cached_file(t, m, FileKind::kRegular, k4K);
    EXPECT_EQ(map(t, file, 3 * kMiB, kMapPrivate).v % (2 * kMiB), 0U);
  });
}

}  // namespace
}  // namespace faultline::kernel
