// SPDX-License-Identifier: Apache-2.0
//
// The tests of mmprobe, step by step, on the modelled kernel.  Names and order are the
// probe's.
#include <functional>
#include <map>

#include "kernel_model/syscall.h"
#include "tests/real_kernels/probe.h"

namespace faultline::real_kernels {
namespace {

using namespace kernel;

constexpr std::uint64_t kMiB = Probe::kMiB, kGiB = Probe::kGiB;
constexpr unsigned kReadWrite = kProtRead | kProtWrite;
constexpr unsigned kAnon = kMapPrivate | kMapAnonymous;

void null(Probe& t) {
  t.mark("nothing");
  t.mark("nothing2");
}

// Where the kernel puts it.
void anon3g(Probe& t) {
  const auto p = t.map(3 * kGiB, kReadWrite, kAnon);
  t.mark("mmap");
  t.touch(p, 3 * kGiB, t.K);
  t.mark("touch64K");
  t.unmap(p, 3 * kGiB);
  t.mark("munmap");
}

void anon3g_al(Probe& t) {
  const auto p = t.mapal(3 * kGiB, t.U);
  t.mark("mmap");
  t.touch(p, 3 * kGiB, t.K);
  t.mark("touch64K");
  t.touch(p, 3 * kGiB, t.K);
  t.mark("again");
  t.unmap(p, 3 * kGiB);
  t.mark("munmap");
}

void advised(Probe& t, Madvise advice) {
  const auto p = t.mapal(3 * kGiB, t.U);
  t.advise(p, 3 * kGiB, advice);
  t.mark("mmap+adv");
  t.touch(p, 3 * kGiB, t.K);
  t.mark("touch64K");
}

void anon_dense(Probe& t) {
  const auto p = t.mapal(512 * kMiB, 512 * kMiB);
  t.mark("mmap");
  t.touch(p, 512 * kMiB, t.P);
  t.mark("touch_every_page");
}

void perthp(Probe& t) {
  const auto p = t.mapal(4 * t.U, t.U);
  t.mark("mmap");
  for (std::uint64_t i = 0; i < 4; ++i) {
    t.write(p + (i * t.U + t.U / 2));
    t.mark("one_touch_in_middle");
  }
}

// One base page less than a huge page.
void sub(Probe& t) {
  const auto p = t.mapal(t.U - t.P, t.U);
  t.mark("mmap");
  t.write(p);
  t.mark("touch_first");
  t.touch(p, t.U - t.P, t.U / 8);
  t.mark("touch_8");
}

void readfirst(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.mark("mmap");
  t.read(p);
  t.mark("read");
  t.write(p + t.P);
  t.mark("write_other_page");
  t.write(p + t.U / 2);
  t.mark("write_mid");
  t.write(p + (t.U + t.P));
  t.mark("write_2nd_thp");
}

void malloc600(Probe& t) {
  const auto p = t.malloc(600 * kMiB);
  t.mark("malloc");
  t.write(p);
  t.mark("touch_first");
  t.write(p + 300 * kMiB);
  t.mark("touch_mid");
  t.write(p + (600 * kMiB - 1));
  t.mark("touch_last");
  t.free(p);
  t.mark("free");
}

void malloc3g(Probe& t) {
  const auto p = t.malloc(3 * kGiB);
  t.mark("malloc");
  t.touch(p, 3 * kGiB, t.K);
  t.mark("touch64K");
  t.free(p);
  t.mark("free");
}

// The brk heap: 100 MiB out of 100 kB chunks.
void heap100(Probe& t) {
  for (int i = 0; i < 1024; ++i) {
    const auto p = t.malloc(102400 - 16);
    t.touch(p, 102384, 4096);
  }
  t.mark("malloc+touch");
}

void thr_idle16(Probe& t) {
  t.threads(
      16, [](ProbeHeap::Thread&) {}, "16_threads_idle");
}

void thr_one4(Probe& t) {
  t.threads(
      4, [](ProbeHeap::Thread& self) { self.touch(self.malloc(1000), 1000, 1); },
      "4_threads_malloc_1000B");
}

// 6.25 MiB in 64 KiB chunks, each fully touched: a thread arena.
void thr_small4(Probe& t) {
  const auto body = [](ProbeHeap::Thread& self) {
    for (int i = 0; i < 100; ++i) self.touch(self.malloc(65000), 65000, 4096);
  };
  t.threads(4, body, "4_threads_6.25MiB_each");
}

void thr_600x4(Probe& t) {
  t.threads(
      4, [](ProbeHeap::Thread& self) { self.touch(self.malloc(600 * kMiB), 1, 1); },
      "4_threads_malloc600MiB_touch1");
}

void dontneed64k(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.touch(p, 2 * t.U, t.P);
  t.mark("touch_2thp");
  t.advise(p + t.U / 2, t.K, Madvise::kDontneed);
  t.mark("DONTNEED_64K");
  t.write(p + t.U / 2);
  t.mark("retouch");
  t.advise(p, t.U, Madvise::kDontneed);
  t.mark("DONTNEED_thp0");
  t.advise(p + t.U, t.U, Madvise::kDontneed);
  t.mark("DONTNEED_thp1_intact");
  t.write(p);
  t.mark("retouch_thp0");
}

void munmaphalf(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.touch(p, 2 * t.U, t.P);
  t.mark("touch_2thp");
  t.unmap(p + t.U / 2, t.U / 2);
  t.mark("munmap_half_of_thp0");
  t.unmap(p, t.U / 2);
  t.mark("munmap_rest_of_thp0");
  t.unmap(p + t.U, t.U);
  t.mark("munmap_thp1");
}

void mprothalf(Probe& t) {
  const auto p = t.mapal(t.U, t.U);
  t.touch(p, t.U, t.P);
  t.mark("touch_thp");
  t.protect(p + t.U / 2, t.U / 2, kProtRead);
  t.mark("mprotect_half_RO");
  t.protect(p + t.U / 2, t.U / 2, kReadWrite);
  t.mark("mprotect_back_RW");
  t.write(p + t.U / 2);
  t.mark("write");
}

void mremap(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.touch(p, t.U, t.P);
  t.mark("touch_thp");
  const auto q = t.mapal(2 * t.U, t.U);
  t.move(p, t.U, q);
  t.mark("mremap_aligned");
  const auto z = t.mapal(2 * t.U, t.U);
  t.move(q, t.U, z + t.P);
  t.mark("mremap_off_by_page");
}

void free64k(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.touch(p, 2 * t.U, t.P);
  t.mark("touch_2thp");
  t.advise(p + t.U / 2, t.K, Madvise::kFree);
  t.mark("FREE_64K");
  t.advise(p + t.U, t.U, Madvise::kFree);
  t.mark("FREE_whole_thp");
  t.write(p + t.U);
  t.mark("rewrite_thp1");
  t.write(p + t.U / 2);
  t.mark("rewrite_64k");
}

void collapse(Probe& t) {
  const auto p = t.mapal(t.U, t.U);
  t.advise(p, t.U, Madvise::kNohugepage);
  t.write(p);
  t.write(p + t.U / 2);
  t.mark("touch_2_small");
  t.advise(p, t.U, Madvise::kHugepage);
  t.advise(p, t.U, Madvise::kCollapse);
  t.mark("MADV_COLLAPSE");
}

void populate(Probe& t) {
  t.map(kGiB, kReadWrite, kAnon | kMapPopulate);
  t.mark("mmap_POPULATE_1GiB");
  const auto q = t.mapal(kGiB, t.U);
  t.advise(q, kGiB, Madvise::kPopulateWrite);
  t.mark("MADV_POPULATE_WRITE_1GiB_al");
}

void fork(Probe& t) {
  const auto p = t.mapal(t.U, t.U);
  t.touch(p, t.U, t.P);
  t.mark("touch_thp");
  Process& child = t.fork();
  t.mark("fork");
  t.write(p);
  t.mark("parent_writes_1");
  t.write(p + t.U / 2);
  t.mark("parent_writes_2nd");
  t.child_writes(child, p + t.P);
  t.mark("child_wrote_1");
  t.child_exits(child);
  t.mark("child_exit");
  t.write(p + (t.U / 2 + t.P));
  t.mark("parent_writes_unshared");
}

// Shared anonymous memory.
void shared(Probe& t) {
  const auto p = t.map(64 * kMiB, kReadWrite, kMapShared | kMapAnonymous);
  t.mark("mmap");
  t.touch(p, 64 * kMiB, t.P);
  t.mark("touch_every_page_64MiB");
}

// A cached file.
void filemap(Probe& t) {
  const auto file = t.write_file(16 * kMiB, 4096);
  t.mark("write_16MiB");
  const auto p = t.map_file(file, 16 * kMiB);
  t.mark("mmap_private");
  for (std::uint64_t i = 0; i < 16 * kMiB; i += t.P) t.read(p + i);
  t.mark("read_every_page");
  t.write(p);
  t.mark("cow_1");
  const auto q = t.map_file(file, 16 * kMiB);
  t.touch(q, 16 * kMiB, t.P);
  t.mark("write_every_page_2nd_map");
}

// The default size; a kernel without hugetlb ends after the first phase.
void hugetlb(Probe& t) {
  const std::uint64_t size = t.set_nr_hugepages(4);
  t.mark("reserve_4");
  if (size == 0) return;
  const auto p = t.map(2 * size, kReadWrite, kAnon | kMapHugetlb);
  t.mark("mmap_2");
  t.write(p);
  t.mark("touch_1");
  t.write(p + size);
  t.mark("touch_2");
  t.unmap(p, 2 * size);
  t.mark("munmap");
}

// One page in each huge range, then wait for khugepaged, which the guest keeps asleep
// otherwise.
void khuge(Probe& t) {
  const auto p = t.mapal(2 * t.U, t.U);
  t.advise(p, 2 * t.U, Madvise::kNohugepage);
  t.write(p);
  t.write(p + t.U);
  t.mark("touch_1_per_thp");
  t.advise(p, 2 * t.U, Madvise::kHugepage);
  KhugepagedKnobs knobs = t.khugepaged().knobs();
  knobs.pages_to_scan = 1'000'000;
  knobs.alloc_sleep_millisecs = 100;
  knobs.scan_sleep_millisecs = 100;
  t.khugepaged().store(t.task(), knobs);
  for (int i = 0; i < 300 && t.anon_huge_bytes() < 2 * t.U; ++i)
    sys_nanosleep(t.task(), t.process(), Duration::ms(100));
  t.mark("after_khugepaged");
}

const std::map<std::string, std::function<void(Probe&)>>& table() {
  static const std::map<std::string, std::function<void(Probe&)>> tests = {
      {"null", null},
      {"anon3g", anon3g},
      {"anon3g_al", anon3g_al},
      {"anon3g_al_hp", [](Probe& t) { advised(t, Madvise::kHugepage); }},
      {"anon3g_al_nohp", [](Probe& t) { advised(t, Madvise::kNohugepage); }},
      {"anon_dense", anon_dense},
      {"perthp", perthp},
      {"sub", sub},
      {"readfirst", readfirst},
      {"malloc600", malloc600},
      {"malloc3g", malloc3g},
      {"heap100", heap100},
      {"thr_idle16", thr_idle16},
      {"thr_one4", thr_one4},
      {"thr_small4", thr_small4},
      {"thr_600x4", thr_600x4},
      {"dontneed64k", dontneed64k},
      {"free64k", free64k},
      {"munmaphalf", munmaphalf},
      {"mprothalf", mprothalf},
      {"collapse", collapse},
      {"khuge", khuge},
      {"mremap", mremap},
      {"fork", fork},
      {"hugetlb", hugetlb},
      {"shared", shared},
      {"filemap", filemap},
      {"populate", populate},
  };
  return tests;
}

}  // namespace

std::function<void(Probe&)> operations_of(const std::string& test) {
  const auto it = table().find(test);
  return it == table().end() ? nullptr : it->second;
}

}  // namespace faultline::real_kernels
