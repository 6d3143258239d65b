// SPDX-License-Identifier: Apache-2.0
//
// The resident set: exact counters, and what /proc would say of them.
//
// The exact values are Mm::rss_*.  Kernels keep part of each change in a cache (of the task
// to 6.1, of the CPU from 6.2) until it is folded into the counter that readers see; this
// class keeps those caches, so that VmRSS lags exactly as the kernel's does.
//
// Stands for: SPLIT_RSS_COUNTING (include/linux/mm_types_task.h, mm/memory.c, v4.15-6.1),
// percpu_counter rss_stat (v6.2-6.17), percpu_counter_sum in task_mmu.c (v6.18).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel_model/config.h"
#include "sim/task.h"

namespace faultline::kernel {

class Mm;

enum class RssKind : std::uint8_t { kAnon, kFile, kShmem };
inline constexpr std::size_t kRssKinds = 3;

class RssStat {
 public:
  RssStat(Mm& mm, RssStatRule rule, unsigned cpus);

  // check_sync_rss_stat(), at each handle_mm_fault.
  void fault_event(Task& task);
  // inc_mm_counter_fast(), dec_mm_counter_fast(): one base page in the fault path.
  void add_fast(Task& task, RssKind kind, std::int64_t pages);
  // fault_event() and add_fast() of one page, `faults` times.
  void fault_run(Task& task, RssKind kind, std::int64_t faults);
  // add_mm_counter(): huge pages, zap, fork.
  void add(Task& task, RssKind kind, std::int64_t pages);
  // sync_mm_rss(): zap and exit fold the caller's cache.
  void sync(Task& task);
  // A process that was set up outside of virtual time: `pages` count, `cached` of them
  // unseen yet in the first task's cache, which has seen `events` faults since it was last
  // folded.
  void set_up(RssKind kind, std::int64_t pages, std::int64_t cached);
  void set_up_events(unsigned events) { first_task_.events = events; }

  // What /proc/PID/status prints, in pages.
  [[nodiscard]] std::uint64_t shown(RssKind kind) const;
  // update_hiwater_rss(): before pages go, what readers see now is remembered.
  void update_hiwater();
  [[nodiscard]] std::uint64_t hiwater_shown() const;  // VmHWM
  [[nodiscard]] std::uint64_t exact(RssKind kind) const {
    return const_cast<RssStat*>(this)->counter(kind);
  }

  // The tasks that have used this mm, by id; null where a task has not.
  struct Cache {
    Task* task = nullptr;
    unsigned events = 0;
    std::array<std::int32_t, kRssKinds> pages{};
  };
  [[nodiscard]] const std::vector<Cache>& tasks() const { return tasks_; }
  Cache& of(Task& task) {
    if (task.id() < tasks_.size() && tasks_[task.id()].task != nullptr)
      return tasks_[task.id()];
    return add_task(task);
  }

 private:
  [[nodiscard]] std::uint64_t shown_total() const;
  Cache& add_task(Task& task);
  std::uint64_t& counter(RssKind kind);
  void change(RssKind kind, std::int64_t pages);
  void cache(Cache& where, RssKind kind, std::int64_t pages);
  void fold(Cache& cache);

  Mm& mm_;
  RssStatRule rule_;
  std::int64_t batch_;  // percpu_counter_batch
  std::vector<Cache> tasks_;
  std::vector<Cache> cpus_;
  Cache first_task_;  // of the task that exec'ed, until it shows up
  bool has_tasks_ = false;
  std::uint64_t hiwater_shown_ = 0;
  std::array<std::int64_t, kRssKinds> cached_{};  // sum over all caches
};

}  // namespace faultline::kernel
