// SPDX-License-Identifier: Apache-2.0
//
// One run: engine, kernel, processes, allocator and workload put together, and what is left
// of them when it is over.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "allocator/platform/model.h"
#include "kernel_model/proc/files.h"
#include "scenarios/run/bind.h"
#include "scenarios/run/cost_notes.h"
#include "scenarios/run/execute.h"
#include "scenarios/run/explain.h"
#include "scenarios/run/hog.h"
#include "scenarios/run/measure.h"
#include "scenarios/run/with_allocator.h"
#include "scenarios/workloads/dispatch.h"
#include "sim/check.h"

namespace faultline::scenario {
namespace {

// One process that runs the workload.
struct Program {
  Program(kernel::Kernel& kernel, const RunSpec& spec)
      : process(kernel.create_process(std::string(spec.workload.decl().name))),
        model(process, {.seed = spec.seed}) {}
  kernel::Process& process;
  alloc::ModelProcess model;
  bool ended = false;
};

// Programs in their machine.  The members are in the order in which they need each other.
class Machine {
 public:
  explicit Machine(const RunSpec& spec)
      : spec_(spec),
        engine_(machine_shape(spec.profile), sched_costs(spec.profile)),
        kernel_(engine_, spec.profile, spec.kernel) {
    for (unsigned i = 0; i < spec.processes; ++i) programs_.emplace_back(kernel_, spec);
    if (spec.pressure.cpus > 0) hog_.emplace(kernel_, spec.pressure);
  }

  VariantRun run(workloads::Progress& progress, KeepProc proc);

 private:
  void start(workloads::Progress& progress);
  void main_thread(Task& task, Program& program, workloads::Progress& progress);
  void end(Task& task, Program& program);
  void keep_proc();

  const RunSpec& spec_;
  Engine engine_;
  kernel::Kernel kernel_;
  std::deque<Program> programs_;
  std::optional<Hog> hog_;
  std::optional<Measurement> measurement_;  // from the workload's start
  unsigned running_ = 0;                    // programs
  workloads::Outcome outcome_;              // sums
  Time started_;
  Duration elapsed_;
  bool keeps_proc_ = false;
  std::vector<std::pair<std::string, std::string>> proc_;
};

// The workload begins: all of its processes at once.
void Machine::start(workloads::Progress& progress) {
  started_ = engine_.now();
  std::vector<kernel::Process*> processes;
  for (Program& p : programs_) processes.push_back(&p.process);
  measurement_.emplace(kernel_, processes);
  running_ = spec_.processes;
  if (hog_) hog_->start();
  unsigned number = 0;
  for (Program& p : programs_) {
    const std::string name =
        spec_.processes == 1 ? "main" : "main." + std::to_string(++number);
    engine_.spawn(name, [&](Task& task) { main_thread(task, p, progress); });
  }
}

// One process's part is over; with the last one the run is.  That one stays as it is, so
// that its state can be looked at.
void Machine::end(Task& task, Program& program) {
  measurement_->end(program.process);
  program.ended = true;
  if (--running_ > 0) {
    kernel::sys_exit_group(task, program.process);
    return;
  }
  if (hog_) hog_->stop();
  keep_proc();
}

void Machine::main_thread(Task& task, Program& program, workloads::Progress& progress) {
  {
    alloc::Model platform(program.model, task);
    with_allocator(platform, spec_.allocator, [&](auto& allocator) {
      const workloads::Outcome outcome =
          workloads::run(platform, allocator, spec_.workload, progress);
      for (const auto& [name, count] : outcome.counts) outcome_.counts[name] += count;
      if (outcome_.failure.empty()) outcome_.failure = outcome.failure;
      end(task, program);
    });
  }
  elapsed_ = std::max(elapsed_, task.now() - started_);
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
    // A program that was killed counts nothing; else the loader knows the names, and those
    // of TLBs that aren't modelled have no value.
    FAULTLINE_CHECK(ours != nullptr || !result.failure.empty() || !spec.profile.tlb_model);
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
  start(progress);
  try {
    engine_.run();
    r.failure = outcome_.failure;
  } catch (const alloc::ProgramKilled& killed) {
    r.failure = killed.what();
    keep_proc();
    elapsed_ = engine_.now() - started_;
    for (Program& p : programs_)
      if (!p.ended) measurement_->end(p.process);
  }
  out.evidence = gather_evidence(engine_, elapsed_);
  r.proc = std::move(proc_);
  r.name = spec_.name;
  r.title = spec_.title;
  r.metrics = measurement_->metrics(out.evidence, outcome_.counts);
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
