// SPDX-License-Identifier: Apache-2.0
//
// A modelled machine with one process, and code run as its main thread.
#pragma once

#include <functional>
#include <string>

#include "allocator/platform/model.h"
#include "allocator/platform/recording.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "arch_profiles/profile_loader.h"
#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/presets/presets.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/engine.h"

namespace faultline::alloc::modelled {

struct MachineChoice {
  const char* profile = "x86-4k";
  const char* kernel = "6.18";
  kernel::ThpEnabled thp = kernel::ThpEnabled::kNever;
  unsigned cpus = 2;
  std::uint64_t memory_bytes = 0;  // 0: the profile's
  kernel::VrangeVersion vrange = kernel::VrangeVersion::kNone;
};

inline arch::Profile profile_of(const MachineChoice& choice) {
  arch::Profile p = arch::load_profile(choice.profile);
  p.cpus = choice.cpus;
  p.node_of_cpu.assign(choice.cpus, 0);
  p.nodes.resize(1);
  p.node_distance = {{10}};
  if (choice.memory_bytes != 0) {
    p.nodes[0].memory_bytes =
        choice.memory_bytes / p.geometry.page_size() * p.geometry.page_size();
    p.nodes[0].free_bytes = p.nodes[0].memory_bytes;
    p.nodes[0].free_blocks.clear();
  }
  return p;
}
inline kernel::KernelConfig config_of(const MachineChoice& choice) {
  kernel::KernelConfig config = kernel::load_preset(choice.kernel);
  config.thp_enabled = choice.thp;
  config.vrange = choice.vrange;
  return config;
}

class Machine {
 public:
  explicit Machine(const MachineChoice& choice = {})
      : profile_(profile_of(choice)),
        engine(MachineShape{profile_.node_of_cpu, profile_.node_distance}, SchedCosts{}),
        kernel(engine, profile_, config_of(choice)),
        process(kernel.create_process("test")),
        model(process) {}

  using Main = std::function<void(Model&)>;
  // Runs `body` as the process's main thread, to the end.
  void run(const Main& body) {
    engine.spawn("main", [&](Task& task) {
      Model p(model, task);
      body(p);
    });
    engine.run();
  }

 private:
  arch::Profile profile_;

 public:
  Engine engine;
  kernel::Kernel kernel;
  kernel::Process& process;
  ModelProcess model;
};

using Heap = Ptmalloc<Model>;

}  // namespace faultline::alloc::modelled
