// SPDX-License-Identifier: Apache-2.0
//
// fork and wait4 of the modelled process: a second process of the kernel, with a copy of
// the bytes, whose one task runs beside the parent's.
//
// Stands for: fork() and wait4() as a libc makes them (glibc, sysdeps/nptl/fork.h).
// Model: the stacks of the parent's other threads stay mapped and are not used again.
#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "allocator/platform/model.h"
#include "sim/engine.h"

namespace faultline::alloc {
namespace {

constexpr Place kFork{"fork"};
constexpr Centre kSysWait4{"sys_wait4", true};

int status_of(kernel::Signal signal) {
  switch (signal) {
    case kernel::Signal::kSegv:
      return sys::kStatusOfSignal + SIGSEGV;
    case kernel::Signal::kBus:
      return sys::kStatusOfSignal + SIGBUS;
    case kernel::Signal::kKill:
      return sys::kStatusOfSignal + SIGKILL;
    case kernel::Signal::kNone:
      break;
  }
  return 0;
}

}  // namespace

// Lives as long as either of the two needs it.
class ModelChild : public std::enable_shared_from_this<ModelChild> {
 public:
  using Body = int (*)(Model&, void*);
  ModelChild(Model& parent, std::unique_ptr<ModelProcess> process, Body body, void* arg)
      : parent_(parent.task_),
        words_(parent.words_),
        process_(std::move(process)),
        body_(body),
        arg_(arg) {}

  void start(const std::string& name) {
    const auto self = shared_from_this();
    parent_.engine().spawn(name, [self](Task& task) { self->run(task); });
  }
  // What wait4 answers, once the child has ended.
  int wait(Model& parent);

  [[nodiscard]] static std::unique_ptr<ModelProcess> take(ModelProcess& parent,
                                                          const kernel::Process& child);

 private:
  void run(Task& task);

  Task& parent_;
  ThreadWords words_;
  std::unique_ptr<ModelProcess> process_;
  Body body_;
  void* arg_;
  int status_ = 0;
  bool ended_ = false, awaited_ = false;
};

std::unique_ptr<ModelProcess> ModelChild::take(ModelProcess& parent,
                                               const kernel::Process& child) {
  const auto at = std::ranges::find_if(
      parent.children_, [&](const auto& c) { return &c->process_ == &child; });
  FAULTLINE_CHECK(at != parent.children_.end());
  std::unique_ptr<ModelProcess> taken = std::move(*at);
  parent.children_.erase(at);
  return taken;
}

void ModelChild::run(Task& task) {
  try {
    Model p(*process_, task);
    p.words_ = words_;
    const Model::Frame frame(p, kFork);
    status_ = body_(p, arg_);
  } catch (const ProgramKilled& killed) {
    status_ = status_of(killed.signal);
  }
  kernel::sys_exit_group(task, process_->process());
  process_.reset();
  task.sync();
  ended_ = true;
  if (awaited_) task.engine().wake(parent_, task.now());
}

int ModelChild::wait(Model& parent) {
  parent.system_call(kSysWait4, {});
  parent_.sync();
  awaited_ = true;
  if (!ended_) parent_.block(TaskState::kSleeping);
  return status_;
}

SysValue Model::run_child(int (*child)(Model&, void*), void (*parent)(Model&, void*),
                          void* arg) {
  flush();
  const auto forked = kernel::sys_fork(task_, process_.process_);
  std::shared_ptr<ModelChild> started;
  if (forked.ok()) {
    started = std::make_shared<ModelChild>(
        *this, ModelChild::take(process_, *forked.value()), child, arg);
    started->start(task_.name() + ".child-" + std::to_string(++process_.children_made_));
  }
  parent(*this, arg);
  if (!started) return {0, static_cast<int>(forked.error())};
  return {static_cast<Addr>(started->wait(*this)), 0};
}

}  // namespace faultline::alloc
