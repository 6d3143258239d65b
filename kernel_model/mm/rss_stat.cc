// SPDX-License-Identifier: Apache-2.0
//
// Caches of RSS changes and when they are folded.
#include "kernel_model/mm/rss_stat.h"

#include <algorithm>
#include <cstdlib>

#include "kernel_model/mm/mm.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr unsigned kTaskRssEventsThresh = 64;  // TASK_RSS_EVENTS_THRESH, mm/memory.c

}  // namespace

// percpu_counter_batch = max(32, 2 * online CPUs) (lib/percpu_counter.c).
RssStat::RssStat(Mm& mm, RssStatRule rule, unsigned cpus)
    : mm_(mm),
      rule_(rule),
      batch_(std::max(32U, 2 * cpus)),
      cpus_(rule == RssStatRule::kPercpu ? cpus : 0) {}

RssStat::Cache& RssStat::add_task(Task& task) {
  if (task.id() >= tasks_.size()) tasks_.resize(task.id() + 1);
  Cache& cache = tasks_[task.id()];
  if (!has_tasks_) cache = first_task_;
  has_tasks_ = true;
  cache.task = &task;
  return cache;
}

std::uint64_t& RssStat::counter(RssKind kind) {
  switch (kind) {
    case RssKind::kAnon:
      return mm_.rss_anon;
    case RssKind::kFile:
      return mm_.rss_file;
    case RssKind::kShmem:
      break;
  }
  return mm_.rss_shmem;
}

void RssStat::change(RssKind kind, std::int64_t pages) {
  std::uint64_t& value = counter(kind);
  value += static_cast<std::uint64_t>(pages);
  FAULTLINE_CHECK_GE(static_cast<std::int64_t>(value), 0);
  if (pages > 0) mm_.hiwater_rss = std::max(mm_.hiwater_rss, mm_.rss());
}

void RssStat::cache(Cache& where, RssKind kind, std::int64_t pages) {
  const auto k = static_cast<std::size_t>(kind);
  where.pages[k] += static_cast<std::int32_t>(pages);
  cached_[k] += pages;
}

void RssStat::fold(Cache& cache) {
  for (std::size_t k = 0; k < kRssKinds; ++k) {
    cached_[k] -= cache.pages[k];
    cache.pages[k] = 0;
  }
}

void RssStat::fault_event(Task& task) {
  Cache& cache = of(task);
  if (rule_ != RssStatRule::kTaskCache || cache.events++ <= kTaskRssEventsThresh) return;
  fold(cache);
  cache.events = 0;
}

void RssStat::add_fast(Task& task, RssKind kind, std::int64_t pages) {
  change(kind, pages);
  if (rule_ == RssStatRule::kTaskCache) cache(of(task), kind, pages);
  if (rule_ != RssStatRule::kPercpu) return;
  Cache& here = cpus_[static_cast<std::size_t>(task.cpu())];
  cache(here, kind, pages);
  const auto k = static_cast<std::size_t>(kind);
  if (std::abs(here.pages[k]) < batch_) return;
  cached_[k] -= here.pages[k];
  here.pages[k] = 0;
}

void RssStat::fault_run(Task& task, RssKind kind, std::int64_t faults) {
  if (rule_ == RssStatRule::kPercpu) {
    for (; faults > 0; --faults) add_fast(task, kind, 1);
    return;
  }
  change(kind, faults);
  if (rule_ != RssStatRule::kTaskCache) return;
  Cache& own = of(task);
  for (;;) {
    const std::int64_t unseen =
        std::min<std::int64_t>(faults, kTaskRssEventsThresh + 1 - std::int64_t{own.events});
    own.events += static_cast<unsigned>(unseen);
    cache(own, kind, unseen);
    faults -= unseen;
    if (faults == 0) return;
    fold(own);  // by the next one, which counts as the first of its cache
    own.events = 0;
    cache(own, kind, 1);
    if (--faults == 0) return;
  }
}

void RssStat::add(Task& task, RssKind kind, std::int64_t pages) {
  if (rule_ == RssStatRule::kPercpu)
    add_fast(task, kind, pages);
  else
    change(kind, pages);
}

void RssStat::sync(Task& task) {
  if (rule_ != RssStatRule::kTaskCache) return;
  Cache& cache = of(task);
  fold(cache);
  cache.events = 0;
}

void RssStat::set_up(RssKind kind, std::int64_t pages, std::int64_t cached) {
  change(kind, pages);
  if (rule_ == RssStatRule::kTaskCache) cache(first_task_, kind, cached);
}

std::uint64_t RssStat::shown(RssKind kind) const {
  const auto k = static_cast<std::size_t>(kind);
  std::int64_t cached = rule_ == RssStatRule::kExact ? 0 : cached_[k];
  // exit_mm() folds what a thread still cached.
  for (const Cache& cache : tasks_)
    if (cache.task != nullptr && cache.task->finished()) cached -= cache.pages[k];
  const std::int64_t value = static_cast<std::int64_t>(exact(kind)) - cached;
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

std::uint64_t RssStat::shown_total() const {
  return shown(RssKind::kAnon) + shown(RssKind::kFile) + shown(RssKind::kShmem);
}

void RssStat::update_hiwater() {
  hiwater_shown_ = hiwater_shown();
}

std::uint64_t RssStat::hiwater_shown() const {
  return std::max(hiwater_shown_, shown_total());
}

}  // namespace faultline::kernel
