// SPDX-License-Identifier: Apache-2.0
//
// /proc/self/maps and the memory lines of /proc/self/status of a static program that has
// mapped four regions and called malloc once, byte for byte as five real 6.1 kernels
// printed them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/proc/maps.h"
#include "kernel_model/proc/status.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"
#include "sim/engine.h"
#include "tests/real_kernels/machine.h"

namespace faultline::real_kernels {
namespace {

using namespace kernel;

struct Recorded {
  std::vector<std::string> mmaps;  // "3221225472 -> 0xffff37ec0000"
  std::string maps, status;
};

std::map<std::string, Recorded> read_layouts() {
  std::ifstream in("tests/real_kernels/data/layouts.txt");
  FAULTLINE_CHECK(in.good());
  std::map<std::string, Recorded> all;
  Recorded* now = nullptr;
  std::string* text = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("== ")) {
      now = &all[line.substr(3)];
      text = nullptr;
    } else if (line.starts_with("LAY mmap ")) {
      now->mmaps.push_back(line.substr(9));
    } else if (line.starts_with("LAY")) {
      text = line == "LAY maps"     ? &now->maps
             : line == "LAY status" ? &now->status
                                    : nullptr;
    } else if (text == &now->maps ||
               (text != nullptr && (line.starts_with("Vm") || line.starts_with("Rss") ||
                                    line.starts_with("Huge")))) {
      *text += line + "\n";
    }
  }
  return all;
}

class Layouts : public ::testing::TestWithParam<std::string> {};

TEST_P(Layouts, MapsAndStatusAreTheKernels) {
  const Recorded real = read_layouts().at(GetParam());
  arch::Profile profile = arch::load_profile(GetParam());
  Engine engine(shape_of(profile), SchedCosts{});
  Kernel kernel(engine, profile, load_preset("6.1"));
  Process& process = kernel.create_process("init");
  engine.spawn("init", [&](Task& task) {
    std::vector<std::string> mmaps;
    for (const std::uint64_t bytes : {1ULL << 16, 1ULL << 20, 3ULL << 30, 600ULL << 20}) {
      const auto at = sys_mmap(task, process, {}, bytes, kProtRead | kProtWrite,
                               kMapPrivate | kMapAnonymous | kMapNoreserve);
      ASSERT_TRUE(at.ok());
      std::ostringstream line;
      line << bytes << " -> 0x" << std::hex << at.value().v;
      mmaps.push_back(line.str());
    }
    EXPECT_EQ(mmaps, real.mmaps);
    EXPECT_EQ(maps_text(process.mm()), real.maps);
    EXPECT_EQ(status_text(process.mm()), real.status);
  });
  engine.run();
}

INSTANTIATE_TEST_SUITE_P(Recorded, Layouts,
                         ::testing::Values("arm64-64k", "arm64-4k", "power-radix-64k",
                                           "power-hash-64k", "x86-4k"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace faultline::real_kernels
