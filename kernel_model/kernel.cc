// SPDX-License-Identifier: Apache-2.0
//
// A machine's kernel and its processes: see kernel.h.
#include "kernel_model/kernel.h"

#include <utility>

#include "kernel_model/mm/data_caches.h"
#include "kernel_model/mm/exec_layout.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/shadow_mmu.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "kernel_model/tlb/tlb.h"

namespace faultline::kernel {

namespace {

// The names are views of the profile's strings: `names` must outlive the result.
ArchCentres make_centres(const arch::ArchNames& names) {
  ArchCentres centres{.user_fault_entry = {names.user_fault_entry, true},
                      .fault_path = {},
                      .syscall_entry = {names.syscall_entry, true},
                      .clear_page = {names.clear_page, true}};
  for (const std::string& name : names.fault_path)
    centres.fault_path.push_back({name, true});
  return centres;
}

}  // namespace

Kernel::Kernel(Engine& engine, const arch::Profile& profile, const KernelConfig& config)
    : engine_(engine),
      profile_(profile),
      config_(config),
      version_(config.version()),
      centres_(make_centres(profile_.names)),
      phys_(std::make_unique<PhysMem>(profile_, config_)),
      vmstat_(std::make_unique<Vmstat>()),
      mm_shared_(std::make_unique<MmShared>(*this)),
      hugetlb_(std::make_unique<HugetlbPools>(*this)),
      tlbs_(profile_.tlb_model ? std::make_unique<Tlbs>(*this) : nullptr),
      data_caches_(profile_.llc.modelled() ? std::make_unique<DataCaches>(*this) : nullptr),
      shadow_mmu_(profile_.virt == arch::Virt::kKvmShadow
                      ? std::make_unique<ShadowMmu>(*this)
                      : nullptr) {
  for (std::size_t node = 0; node < profile_.nodes.size(); ++node)
    bandwidth_.push_back(
        std::make_unique<SharedBandwidth>(engine, profile_.costs.node_bandwidth));
  phys_->set_slow_path(mm_shared_->vmscan(), config_.memcg_max != 0);
  hugetlb_->boot();
}

// khugepaged may be in the middle of a collapse.
Kernel::~Kernel() {
  engine_.stop_daemons();
  mm_shared_->khugepaged.clear();
}

Process& Kernel::create_process(std::string name) {
  Process& process = add_process(std::move(name));
  set_up_exec_layout(process.mm());
  return process;
}

Process& Kernel::add_process(std::string name) {
  const auto asid = static_cast<std::uint32_t>(processes_.size() + 1);
  processes_.push_back(std::make_unique<Process>(*this, std::move(name), asid));
  return *processes_.back();
}

void Kernel::watch_contents() {
  contents_ = std::make_unique<PageContents>();
}

SharedBandwidth& Kernel::bandwidth(int node) {
  return *bandwidth_[static_cast<std::size_t>(node)];
}

LockCosts Kernel::lock_costs() const {
  return {.atomic = profile_.costs.lock_atomic, .handover = profile_.costs.lock_handover};
}

Process::Process(Kernel& kernel, std::string name, std::uint32_t asid)
    : kernel_(kernel),
      name_(std::move(name)),
      asid_(asid),
      mm_(std::make_unique<Mm>(*this)) {}

Process::~Process() = default;

std::unique_ptr<Mm> Process::exec_mmap(std::unique_ptr<Mm> mm) {
  std::swap(mm_, mm);
  access_caches.forget();
  if (Tlbs* const tlbs = kernel_.tlbs()) tlbs->flush_all(*this);
  return mm;
}

}  // namespace faultline::kernel
