// SPDX-License-Identifier: Apache-2.0
//
// What is around one program: other processes, pressure, and a kernel that has the calls
// which the scenario asks for.
#include <memory>

#include "allocator/jemalloc/conf.h"
#include "allocator/ptmalloc/release.h"
#include "kernel_model/presets/presets.h"
#include "scenarios/run/load_settings.h"
#include "scenarios/workloads/ops_program.h"

namespace faultline::scenario {
namespace {

constexpr unsigned kMadvFreeSince = 4'005;
constexpr std::int64_t kMostProcesses = 64, kMostHogs = 1024, kLeastNice = -20,
                       kMostNice = 19;

std::uint64_t size_or(const Node& table, std::string_view key, std::uint64_t fallback) {
  const Node* node = table.find(key);
  return node == nullptr ? fallback : as_size(*node, "pressure." + std::string(key));
}

}  // namespace

unsigned read_processes(const Node& settings) {
  const Node* node = settings.find("processes");
  return node == nullptr
             ? 1
             : static_cast<unsigned>(as_integer(*node, "processes", 1, kMostProcesses));
}

PressureSpec read_pressure(const Node& settings) {
  PressureSpec spec;
  const Node* node = settings.find("pressure");
  if (node == nullptr) return spec;
  const Node& table = as_table(*node, "pressure");
  check_keys(table, "[pressure]",
             std::vector<std::string>{"cpus", "dirty_rate", "grow_rate", "most", "nice",
                                      "target_free"});
  spec.cpus = static_cast<unsigned>(
      as_integer(require(table, "cpus", "[pressure]"), "pressure.cpus", 0, kMostHogs));
  if (const Node* nice = table.find("nice"))
    spec.nice = static_cast<int>(as_integer(*nice, "pressure.nice", kLeastNice, kMostNice));
  spec.dirty_rate = size_or(table, "dirty_rate", spec.dirty_rate);
  spec.target_free = size_or(table, "target_free", spec.target_free);
  spec.most = size_or(table, "most", spec.most);
  spec.grow_rate = size_or(table, "grow_rate", spec.grow_rate);
  if (const Node* rate = table.find("grow_rate"); rate != nullptr && spec.grow_rate == 0)
    throw InputError({rate->place,
                      "pressure.grow_rate",
                      "pressure.grow_rate must be more than 0",
                      "one page in a very long time is close",
                      {}});
  return spec;
}

void check_purge_policy(const Place& place, const std::string& key, std::string_view policy,
                        const kernel::KernelConfig& config) {
  if (policy.starts_with("free") && config.version() < kMadvFreeSince)
    throw InputError({place,
                      key,
                      key + ": Linux " + config.preset + " has no MADV_FREE, which \"" +
                          std::string(policy) + "\" needs: it came with 4.5",
                      {},
                      {"dontneed", "none"}});
  if (policy.starts_with("vrange") && config.vrange == kernel::VrangeVersion::kNone)
    throw InputError(
        {place,
         key,
         key + ": this kernel has no vrange, which \"" + std::string(policy) + "\" needs",
         "no released kernel has it; set kernel.vrange = \"v7\"",
         {}});
}

void check_policy(const Node& settings, const workloads::Params& workload,
                  const kernel::KernelConfig& config) {
  if (workload.decl().param("policy") == nullptr) return;
  const Node& table = require(settings, "workload", "the scenario");
  const Node* given = table.find("policy");
  check_purge_policy(given != nullptr ? given->place : table.place, "workload.policy",
                     workload.choice("policy"), config);
}

// What real jemalloc knows of its memory lies on the host, where a modelled fork copies
// nothing.
void check_fork(const Node& settings, const AllocatorSpec& spec,
                const workloads::Params& workload) {
  if (workload.decl().name != "ops" || spec.name != "jemalloc-5.3") return;
  const auto program = std::make_unique<workloads::OpsProgram>();
  static_cast<void>(workloads::read_ops(workload.text("program"), *program));
  if (!program->has_fork) return;
  const Node& allocator = require(settings, "allocator", "the scenario");
  throw InputError({require(allocator, "name", "[allocator]").place,
                    "allocator.name",
                    "allocator.name: the program forks, and \"jemalloc-5.3\" keeps its own "
                    "data outside of the modelled process",
                    {},
                    {"jemalloc", "ptmalloc"}});
}

void check_give_back(const Node& settings, const AllocatorSpec& spec,
                     const kernel::KernelConfig& config) {
  const Node* const node = settings.find("allocator");
  if (node == nullptr) return;
  const Node* const conf = node->find("conf");
  const Node* const release = node->find("release");
  if (spec.name.starts_with("jemalloc") && conf != nullptr) {
    check_purge_policy(conf->place, "allocator.conf",
                       alloc::je::purge_name(spec.jemalloc.purge), config);
    if (spec.jemalloc.muzzy_decay_ms != 0)
      check_purge_policy(conf->place, "allocator.conf", "free", config);
  }
  if (spec.name == "ptmalloc" && release != nullptr &&
      alloc::find_release(spec.release)->give_back != alloc::GiveBack::kDontneed)
    check_purge_policy(release->place, "allocator.release", "vrange", config);
}

}  // namespace faultline::scenario
