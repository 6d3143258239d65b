// SPDX-License-Identifier: Apache-2.0
//
// Volatile memory as a program sees it: both conventions of the call, what is lost, and a
// handler for SIGBUS that makes it good.
#include <gtest/gtest.h>

#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "tests/unit/allocator/model_bench.h"

namespace faultline::alloc::modelled {
namespace {

using kernel::VrangeVersion;

constexpr unsigned kRw = sys::kProtRead | sys::kProtWrite;
constexpr unsigned kAnon = sys::kMapPrivate | sys::kMapAnonymous;
constexpr std::uint64_t kBytes = 16 * 4096;

MachineChoice with(VrangeVersion version) {
  return {.kernel = "3.9", .vrange = version};
}
void purge(Machine& m, Model& p, Addr at, std::uint64_t bytes) {
  m.kernel.mm_shared().lrus.start();
  kernel::ScanControl sc;
  m.process.mm().mmap_read_lock(p.task());
  m.kernel.mm_shared().vranges().discard_range(p.task(), m.process.mm(),
                                               {{at}, {at + bytes}}, -1, sc);
  m.process.mm().mmap_read_unlock(p.task());
}

TEST(ModelVrange, IsEnosysWithoutThePatches) {
  Machine m;
  m.run([&](Model& p) {
    const Addr a = p.mmap(0, kBytes, kRw, kAnon).value;
    EXPECT_EQ(p.vrange(a, kBytes, sys::kVrangeVolatile, 0).error, sys::kENOSYS);
    EXPECT_EQ(p.facts().vrange_version, 0U);
  });
}

TEST(ModelVrange, BothConventionsTellWhatWasLost) {
  for (const VrangeVersion version :
       {VrangeVersion::k7, VrangeVersion::k8, VrangeVersion::k10, VrangeVersion::kVma}) {
    Machine m(with(version));
    m.run([&](Model& p) {
      const bool bytes = p.facts().vrange_version >= 8;
      EXPECT_EQ(bytes, version >= VrangeVersion::k8);
      const Addr a = p.mmap(0, kBytes, kRw, kAnon).value;
      const Addr purged = p.mmap(0, 4096, kRw, kAnon).value;
      for (Addr at = a; at < a + kBytes; at += 4096) p.store<std::uint64_t>(at, at);
      SysValue r = p.vrange(a, kBytes, sys::kVrangeVolatile, bytes ? purged : 0);
      EXPECT_EQ(r.error, 0);
      EXPECT_EQ(r.value, bytes ? kBytes : 0);
      EXPECT_EQ(p.load<std::uint64_t>(a), a) << "still there";
      purge(m, p, a, 4096);
      r = p.vrange(a, kBytes, sys::kVrangeNovolatile, bytes ? purged : 0);
      EXPECT_EQ(r.value, bytes ? kBytes : 1);
      if (bytes) {
        EXPECT_EQ(p.load<std::uint32_t>(purged), 1U);
      }
      EXPECT_EQ(p.load<std::uint64_t>(a), 0U) << "lost";
      EXPECT_EQ(p.load<std::uint64_t>(a + 4096), a + 4096) << "kept";
      if (bytes) {
        EXPECT_EQ(p.vrange(a, kBytes, sys::kVrangeVolatile, 0x1000).error, sys::kEFAULT);
      }
    });
  }
}

TEST(ModelVrange, WithoutAHandlerSigbusEndsTheProgram) {
  Machine m(with(VrangeVersion::k7));
  try {
    m.run([&](Model& p) {
      const Addr a = p.mmap(0, kBytes, kRw, kAnon).value;
      p.touch(a, kBytes, Touch::kWrite);
      EXPECT_TRUE(p.vrange(a, kBytes, sys::kVrangeVolatile, 0).ok());
      purge(m, p, a, kBytes);
      p.touch(a, kBytes, Touch::kRead);
      ADD_FAILURE() << "it lives on";
    });
    ADD_FAILURE() << "no signal";
  } catch (const ProgramKilled& killed) {
    EXPECT_EQ(killed.signal, kernel::Signal::kBus);
    EXPECT_NE(std::string(killed.what()).find("SIGBUS, reading at 0x"), std::string::npos);
  }
}

struct Recovery {
  Addr area = 0;
  std::vector<Addr> at;
};
bool recover(Model& p, Addr at, void* arg) {
  auto& r = *static_cast<Recovery*>(arg);
  r.at.push_back(at);
  EXPECT_TRUE(p.vrange(r.area, kBytes, sys::kVrangeNovolatile, 0).ok());
  p.store<std::uint64_t>(at, 99);
  return true;
}

TEST(ModelVrange, AHandlerMakesGoodWhatWasLostAndTheAccessIsRepeated) {
  for (const bool touches : {false, true}) {
    Machine m(with(VrangeVersion::k7));
    m.run([&](Model& p) {
      Recovery r;
      r.area = p.mmap(0, kBytes, kRw, kAnon).value;
      EXPECT_TRUE(p.set_bus_handler({recover, &r}));
      p.touch(r.area, kBytes, Touch::kWrite);
      EXPECT_TRUE(p.vrange(r.area, kBytes, sys::kVrangeVolatile, 0).ok());
      purge(m, p, r.area + 8 * 4096, 4096);
      const Time before = p.task().now();
      if (touches) {
        p.touch(r.area, kBytes, Touch::kWrite);
      } else {
        EXPECT_EQ(p.load<std::uint64_t>(r.area + 8 * 4096), 99U);
      }
      EXPECT_EQ(r.at, std::vector<Addr>{r.area + 8 * 4096});
      EXPECT_GE(p.task().now() - before, m.kernel.profile().costs.signal_delivery);
      EXPECT_EQ(p.load<std::uint64_t>(r.area + 8 * 4096), 99U);
    });
  }
}

TEST(ModelVrange, ARecordingPassesHandlerAndCallsOn) {
  Machine m(with(VrangeVersion::k7));
  SysLog log(16);
  m.run([&](Model& p) {
    Recording<Model> r(p, log);
    struct State {
      Addr area;
      unsigned calls = 0;
    } state{r.mmap(0, kBytes, kRw, kAnon).value};
    r.set_bus_handler({[](Recording<Model>& t, Addr, void* arg) {
                         auto& s = *static_cast<State*>(arg);
                         ++s.calls;
                         return t.vrange(s.area, kBytes, sys::kVrangeNovolatile, 0).ok();
                       },
                       &state});
    r.touch(state.area, kBytes, Touch::kWrite);
    EXPECT_TRUE(r.vrange(state.area, kBytes, sys::kVrangeVolatile, 0).ok());
    purge(m, p, state.area, kBytes);
    EXPECT_EQ(r.load<std::uint64_t>(state.area), 0U);
    EXPECT_EQ(state.calls, 1U);
    EXPECT_EQ(log.count(SysName::kVrange), 2U);
  });
}

}  // namespace
}  // namespace faultline::alloc::modelled
