// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/lock_stat.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace faultline::kernel {
namespace {

constexpr std::size_t kWidth = 40 + 1 + 12 * (14 + 1);
constexpr std::size_t kPoints = 4;  // LOCKSTAT_POINTS

std::string seq_line(char c, std::size_t offset, std::size_t length) {
  return std::string(offset, ' ') + std::string(length, c) + '\n';
}

// snprintf_time(): microseconds with two decimals, rounded.
std::string lock_time(std::int64_t ns) {
  const std::int64_t rounded = ns + 5;
  return fmt::format(" {:>14}",
                     fmt::format("{}.{:02}", rounded / 1000, rounded % 1000 / 10));
}

// seq_lock_time().
std::string times(std::uint64_t count, Duration min, Duration max, Duration total) {
  const std::int64_t ns = total.count_ps() / 1000;
  if (min == LockStats::kNone) min = {};
  return fmt::format("{:>14}", count) + lock_time(min.count_ps() / 1000) +
         lock_time(max.count_ps() / 1000) + lock_time(ns) +
         lock_time(count == 0 ? 0 : ns / static_cast<std::int64_t>(count));
}

std::string side(const std::string& label, const LockStats::Side& s) {
  return label + fmt::format("{:>14} ", s.contended) +
         times(s.contended, s.wait_min, s.wait_max, s.wait) +
         fmt::format(" {:>14} ", s.acquired) +
         times(s.acquired, s.hold_min, s.hold_max, s.hold) + "\n";
}

// The places that waited (or held) most often, as the kernel's four points a class.
std::string points(const LockStats& lock, std::size_t name_length, bool holders) {
  std::vector<std::pair<const CentreTree::Node*, std::uint64_t>> counts;
  for (const LockStats::Blame& b : lock.blames) {
    const CentreTree::Node* node = holders ? b.holder : b.waiter;
    auto it = std::ranges::find(counts, node,
                                &std::pair<const CentreTree::Node*, std::uint64_t>::first);
    if (it == counts.end()) it = counts.insert(it, {node, 0});
    it->second += b.count;
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(counts.size(), kPoints); ++i) {
    const auto [node, count] = counts[i];
    if (i == 0)
      out += seq_line('-', 40 - std::min<std::size_t>(name_length, 40), name_length);
    const std::string_view place = node == nullptr ? "?" : node->centre->name;
    out += fmt::format("{:>40} {:>14} {:>29} {}\n", lock.name, count, "[<0>]", place);
  }
  return out;
}

}  // namespace

std::string lock_stat_text(const LockRegistry& locks) {
  std::string out = "lock_stat version 0.4\n" + seq_line('-', 0, kWidth);
  out += fmt::format(
      "{:>40} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} "
      "{:>14}\n",
      "class name", "con-bounces", "contentions", "waittime-min", "waittime-max",
      "waittime-total", "waittime-avg", "acq-bounces", "acquisitions", "holdtime-min",
      "holdtime-max", "holdtime-total", "holdtime-avg");
  out += seq_line('-', 0, kWidth) + "\n";
  std::vector<const LockStats*> by_contention;
  for (const LockStats& lock : locks.all()) by_contention.push_back(&lock);
  std::ranges::stable_sort(by_contention, [](const LockStats* a, const LockStats* b) {
    return a->write.contended + a->read.contended > b->write.contended + b->read.contended;
  });
  for (const LockStats* lock : by_contention) {
    const bool read = lock->read.acquired != 0;
    if (lock->write.acquired != 0)
      out += side(
          read ? fmt::format("{:>38}-W:", lock->name) : fmt::format("{:>40}:", lock->name),
          lock->write);
    if (read) out += side(fmt::format("{:>38}-R:", lock->name), lock->read);
    if (lock->write.contended + lock->read.contended == 0) continue;
    const std::size_t name_length = lock->name.size() + (read ? 2 : 0);
    out += points(*lock, name_length, false) + points(*lock, name_length, true);
    out += "\n" + seq_line('.', 0, kWidth) + "\n";
  }
  return out;
}

}  // namespace faultline::kernel
