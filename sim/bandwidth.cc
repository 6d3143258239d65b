// SPDX-License-Identifier: Apache-2.0
// Processor sharing in integers.
#include "sim/bandwidth.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline {
namespace {

__extension__ using Work = __int128;  // bytes x 10^12: bytes/s x ps
constexpr std::int64_t kPicoseconds = 1'000'000'000'000;

// Rounded up: at the end of it nothing is left.
Duration time_for(Work work, std::uint64_t rate) {
  return Duration::ps(static_cast<std::int64_t>((work + rate - 1) / rate));
}

}  // namespace

struct SharedBandwidth::Transfer {
  Task* task;
  std::uint64_t max_rate;
  Work left;
  std::uint64_t rate = 0;
  bool done = false;
};

SharedBandwidth::SharedBandwidth(Engine& engine, std::uint64_t bytes_per_second)
    : engine_(&engine), capacity_(bytes_per_second) {
  FAULTLINE_CHECK_GT(bytes_per_second, 0u);
}

SharedBandwidth::~SharedBandwidth() {
  if (completion_due_) engine_->cancel(completion_);
}

void SharedBandwidth::transfer(Task& task, std::uint64_t bytes, std::uint64_t max_rate) {
  FAULTLINE_CHECK_GT(max_rate, 0u);
  if (bytes == 0) return;
  task.sync();
  Transfer me{.task = &task, .max_rate = max_rate, .left = Work{bytes} * kPicoseconds};
  if (active_.empty()) {  // alone, and nobody will come meanwhile?
    const Duration alone = time_for(me.left, std::min(max_rate, capacity_));
    if (engine_->nobody_due_until(task.now() + alone)) {
      task.charge(alone);
      return;
    }
  }
  const auto on_resched =
      task.preemptible() ? Engine::OnResched::kStop : Engine::OnResched::kStay;
  join(me);
  while (!me.done) {
    engine_->stay(task, TaskState::kRunning, Time::never(), on_resched);
    if (me.done || !task.preemptible() || !engine_->need_resched(task)) continue;
    leave(me);
    if (me.left <= 0) break;
    engine_->preempt(task);
    join(me);
  }
}

void SharedBandwidth::join(Transfer& transfer) {
  advance();
  const auto place = std::upper_bound(
      active_.begin(), active_.end(), &transfer,
      [](const Transfer* a, const Transfer* b) { return a->max_rate < b->max_rate; });
  active_.insert(place, &transfer);
  share_out();
}

void SharedBandwidth::leave(Transfer& transfer) {
  advance();
  active_.erase(std::find(active_.begin(), active_.end(), &transfer));
  share_out();
}

// What was moved since the last change.
void SharedBandwidth::advance() {
  const std::int64_t elapsed = (engine_->now() - advanced_to_).count_ps();
  advanced_to_ = engine_->now();
  if (elapsed == 0) return;
  for (Transfer* t : active_) t->left -= Work{t->rate} * elapsed;
}

// New rates, and an event when the first transfer will be over.
void SharedBandwidth::share_out() {
  if (completion_due_) engine_->cancel(completion_);
  completion_due_ = !active_.empty();
  if (active_.empty()) return;

  std::uint64_t capacity = capacity_;
  std::uint64_t share = 0;  // of those that could use more; 0 while all so far have their top rate
  Duration first = Duration::ps(INT64_MAX);
  for (std::size_t i = 0; i < active_.size();) {
    if (share == 0) {
      const std::uint64_t equal = std::max<std::uint64_t>(capacity / (active_.size() - i), 1);
      if (active_[i]->max_rate > equal) share = equal;
    }
    const std::uint64_t rate = share != 0 ? share : active_[i]->max_rate;
    Work least = active_[i]->left;
    std::size_t end = i;
    for (; end < active_.size() && (share != 0 || active_[end]->max_rate == rate); ++end) {
      active_[end]->rate = rate;
      least = std::min(least, active_[end]->left);
    }
    capacity -= std::min(capacity, rate * (end - i));
    first = std::min(first, time_for(std::max<Work>(least, 0), rate));
    i = end;
  }
  completion_ = engine_->at(engine_->now() + first, [this] { complete(); });
}

void SharedBandwidth::complete() {
  completion_due_ = false;
  advance();
  const auto over = [](const Transfer* t) { return t->left <= 0; };
  for (Transfer* t : active_)
    if (over(t)) {
      t->done = true;
      engine_->wake(*t->task, engine_->now());
    }
  active_.erase(std::remove_if(active_.begin(), active_.end(), over), active_.end());
  share_out();
}

}  // namespace faultline
