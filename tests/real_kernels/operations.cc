// SPDX-License-Identifier: Apache-2.0
//
// The tests of mmprobe, step by step, on the modelled kernel.  Names and order are the
// probe's.
#include <functional>
#include <map>

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
  };
  return tests;
}

}  // namespace

std::function<void(Probe&)> operations_of(const std::string& test) {
  const auto it = table().find(test);
  return it == table().end() ? nullptr : it->second;
}

}  // namespace faultline::real_kernels
