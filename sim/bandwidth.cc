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
  // Nearly always: a division of 128 bits takes the host several times longer.
  if (work + rate <= INT64_MAX)
    return Duration::ps(
        static_cast<std::int64_t>((static_cast<std::uint64_t>(work) + rate - 1) / rate));
  return Duration::ps(static_cast<std::int64_t>((work + rate - 1) / rate));
}

}  // namespace

struct SharedBandwidth::Transfer {
  Task* task;
  RateClass* rate_class;
  Work left;    // while it is not in the class
  Work mark{};  // while it is: over when the class has served so much
  bool done = false;
};

struct SharedBandwidth::RateClass {
  std::uint64_t max_rate;
  std::uint64_t rate = 0;
  Work served{};  // to each member, had it been there all the time
  std::vector<Transfer*>
      members{};  // by mark, the next to be over last; equal ones by arrival
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
  Transfer me{
      .task = &task, .rate_class = &class_of(max_rate), .left = Work{bytes} * kPicoseconds};
  if (active_ == 0) {  // alone, and nobody will come meanwhile?
    const Duration alone = time_for(me.left, std::min(max_rate, capacity_));
    if (engine_->nobody_due_until(task.now() + alone)) {
      task.charge(alone);
      engine_->begin_work(task);
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
  engine_->begin_work(task);
}

SharedBandwidth::RateClass& SharedBandwidth::class_of(std::uint64_t max_rate) {
  auto place = classes_.begin();
  while (place != classes_.end() && (*place)->max_rate < max_rate) ++place;
  if (place == classes_.end() || (*place)->max_rate != max_rate)
    place = classes_.insert(place,
                            std::make_unique<RateClass>(RateClass{.max_rate = max_rate}));
  return **place;
}

void SharedBandwidth::join(Transfer& transfer) {
  advance();
  RateClass& c = *transfer.rate_class;
  transfer.mark = c.served + transfer.left;
  const auto place = std::lower_bound(
      c.members.begin(), c.members.end(), &transfer,
      [](const Transfer* a, const Transfer* b) { return a->mark > b->mark; });
  c.members.insert(place, &transfer);
  ++active_;
  share_out();
}

void SharedBandwidth::leave(Transfer& transfer) {
  advance();
  RateClass& c = *transfer.rate_class;
  transfer.left = transfer.mark - c.served;
  c.members.erase(std::find(c.members.begin(), c.members.end(), &transfer));
  --active_;
  share_out();
}

// What was moved since the last change.
void SharedBandwidth::advance() {
  const std::int64_t elapsed = (engine_->now() - advanced_to_).count_ps();
  advanced_to_ = engine_->now();
  if (elapsed == 0) return;
  for (const auto& c : classes_)
    if (!c->members.empty()) c->served += Work{c->rate} * elapsed;
}

// New rates, and an event when the first transfer will be over.
void SharedBandwidth::share_out() {
  if (completion_due_) engine_->cancel(completion_);
  completion_due_ = active_ > 0;
  if (active_ == 0) return;

  std::uint64_t capacity = capacity_;
  std::size_t hungry = active_;  // those that have no rate yet
  Duration first = Duration::ps(INT64_MAX);
  for (const auto& c : classes_) {
    if (c->members.empty()) continue;
    const std::uint64_t share = std::max<std::uint64_t>(capacity / hungry, 1);
    c->rate = std::min(c->max_rate, share);
    capacity -= std::min(capacity, c->rate * c->members.size());
    hungry -= c->members.size();
    const Work least = c->members.back()->mark - c->served;
    first = std::min(first, time_for(std::max<Work>(least, 0), c->rate));
  }
  completion_ = engine_->at(engine_->now() + first, [this] { complete(); });
}

void SharedBandwidth::complete() {
  completion_due_ = false;
  advance();
  for (const auto& c : classes_)
    while (!c->members.empty() && c->members.back()->mark <= c->served) {
      Transfer& over = *c->members.back();
      c->members.pop_back();
      --active_;
      over.done = true;
      engine_->wake(*over.task, engine_->now());
    }
  share_out();
}

}  // namespace faultline
