// SPDX-License-Identifier: Apache-2.0
//
// One run: engine, kernel, process, allocator and workload put together, and what is left
// of them when it is over.
#include <algorithm>
#include <utility>

#include "allocator/platform/model.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "kernel_model/proc/files.h"
#include "scenarios/run/bind.h"
#include "scenarios/run/cost_notes.h"
#include "scenarios/run/execute.h"
#include "scenarios/run/explain.h"
#include "scenarios/run/measure.h"
#include "scenarios/workloads/dispatch.h"
#include "sim/check.h"

namespace faultline::scenario {
namespace {

// A program in its machine.  The members are in the order in which they need each other.
class Machine {
 public:
  explicit Machine(const RunSpec& spec)
      : spec_(spec),
        engine_(machine_shape(spec.profile), sched_costs(spec.profile)),
        kernel_(engine_, spec.profile, spec.kernel),
        process_(kernel_.create_process(std::string(spec.workload.decl().name))),
        program_(process_, {.seed = spec.seed}),
        measurement_(kernel_, process_) {}

  VariantRun run(workloads::Progress& progress, KeepProc proc);

 private:
  void main_thread(Task& task, workloads::Progress& progress);
  void keep_proc();

  const RunSpec& spec_;
  Engine engine_;
  kernel::Kernel kernel_;
  kernel::Process& process_;
  alloc::ModelProcess program_;
  Measurement measurement_;
  workloads::Outcome outcome_;
  Duration elapsed_;
  bool keeps_proc_ = false;
  std::vector<std::pair<std::string, std::string>> proc_;
};

void Machine::main_thread(Task& task, workloads::Progress& progress) {
  const Time start = task.now();
  {
    alloc::Model platform(program_, task);
    const alloc::ReleaseProfile* release = alloc::find_release(spec_.allocator.release);
    FAULTLINE_CHECK(release != nullptr);
    alloc::Ptmalloc<alloc::Model> allocator(platform, *release, spec_.allocator.settings);
    outcome_ = workloads::run(platform, allocator, spec_.workload, progress);
    keep_proc();
  }
  elapsed_ = task.now() - start;
  measurement_.end();
}

std::vector<StackShare> shares(const Evidence& e) {
  std::vector<StackShare> all;
  for (const Evidence::Stack& s : e.stacks) {
    if (s.busy == Duration{}) continue;
    std::string path;
    for (const std::string& f : s.frames) path += (path.empty() ? "" : ";") + f;
    all.push_back(
        {path, s.user_frames, s.busy,
         Decimal::ratio(Decimal::seconds(s.busy), Decimal::seconds(e.busy()), 6)});
  }
  std::stable_sort(all.begin(), all.end(), [](const StackShare& a, const StackShare& b) {
    return a.self > b.self;
  });
  return all;
}

std::vector<LockUse> lock_uses(const Evidence& e) {
  std::vector<LockUse> all;
  for (const Evidence::Lock& l : e.locks)
    all.push_back({l.name, l.write.acquired + l.read.acquired,
                   l.write.contended + l.read.contended, l.wait(),
                   l.write.hold + l.read.hold});
  std::stable_sort(all.begin(), all.end(),
                   [](const LockUse& a, const LockUse& b) { return a.wait > b.wait; });
  return all;
}

std::vector<Published> beside_published(const RunSpec& spec, const VariantResult& result) {
  std::vector<Published> all;
  for (const PublishedNumber& p : spec.published) {
    const Metric* ours = result.metric(p.metric);
    // The loader knows the names; those of TLBs that aren't modelled have no value.
    FAULTLINE_CHECK(ours != nullptr || !spec.profile.tlb_model);
    if (ours == nullptr) continue;
    all.push_back({p.metric, p.source, p.value, ours->value,
                   Decimal::ratio(ours->value, p.value, 4), p.role});
  }
  return all;
}

// As the program leaves it: its allocator still holds what it holds.
void Machine::keep_proc() {
  if (!keeps_proc_) return;
  for (kernel::PseudoFile& file : kernel::proc_files(kernel_))
    proc_.emplace_back(std::move(file.path), std::move(file.text));
}

VariantRun Machine::run(workloads::Progress& progress, KeepProc proc) {
  keeps_proc_ = proc == KeepProc::kYes;
  VariantRun out;
  VariantResult& r = out.result;
  engine_.spawn("main", [&](Task& task) { main_thread(task, progress); });
  try {
    engine_.run();
    r.failure = outcome_.failure;
  } catch (const alloc::ProgramKilled& killed) {
    r.failure = killed.what();
    keep_proc();
    elapsed_ = engine_.now().since_start();
    measurement_.end();
  }
  out.evidence = gather_evidence(engine_, elapsed_);
  r.proc = std::move(proc_);
  r.name = spec_.name;
  r.title = spec_.title;
  r.metrics = measurement_.metrics(out.evidence, outcome_.counts);
  r.published = beside_published(spec_, r);
  r.top = shares(out.evidence);
  r.locks = lock_uses(out.evidence);
  r.explanation = explain(out.evidence);
  r.cost_notes = cost_notes(spec_.profile);
  r.notes = spec_.allocator.notes;
  r.tlb_modelled = spec_.profile.tlb_model;
  r.tlb_note = spec_.profile.tlb_events.note;
  return out;
}

}  // namespace

VariantRun run_variant(const RunSpec& spec, workloads::Progress& progress, KeepProc proc) {
  return Machine(spec).run(progress, proc);
}

}  // namespace faultline::scenario
