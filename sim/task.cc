// SPDX-License-Identifier: Apache-2.0
// The ways a task waits; the engine does the rest.
#include "sim/task.h"

#include "sim/check.h"
#include "sim/engine.h"
#include "sim/fiber.h"

namespace faultline {

Task::Task() = default;
Task::~Task() = default;

void Task::sync_slow() {
  engine_->synchronise(*this);
}

void Task::work(Duration d) {
  FAULTLINE_CHECK_GE(d, Duration{});
  while (d > Duration{}) {
    const Time end = now_ + d;
    engine_->stay(*this, TaskState::kRunning, end,
                  preemptible() ? Engine::OnResched::kStop : Engine::OnResched::kStay);
    d = end - now_;
    if (engine_->smt())
      sync_slow();
    else if (preemptible() && engine_->need_resched(*this))
      engine_->preempt(*this);
  }
  sync();
}

void Task::sleep(Duration d) {
  sync();
  engine_->block(*this, TaskState::kSleeping, now_ + d + engine_->costs().timer_slack);
}

void Task::block(TaskState state) {
  engine_->block(*this, state, Time::never());
}

void Task::spin() {
  engine_->stay(*this, TaskState::kSpinning, Time::never(), Engine::OnResched::kStay);
}

}  // namespace faultline
