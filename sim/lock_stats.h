// SPDX-License-Identifier: Apache-2.0
//
// What is known of a lock class after a run: the figures of /proc/lock_stat, and who waited
// for whom.  Locks of one class (every page-table lock, every VMA lock) share one entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/cost_centre.h"
#include "sim/time.h"

namespace faultline {

enum class LockMode : std::uint8_t { kWrite, kRead };  // exclusive locks use kWrite

struct LockStats {
  std::string name;
  static constexpr Duration kNone = Duration::ps(INT64_MAX);  // a minimum of nothing
  struct Side {
    std::uint64_t acquired = 0;
    std::uint64_t contended = 0;
    Duration wait, wait_min = kNone, wait_max;
    Duration hold, hold_min = kNone, hold_max;

    void waited(Duration d) {
      ++contended;
      wait += d;
      if (d < wait_min) wait_min = d;
      if (wait_max < d) wait_max = d;
    }
    void held(Duration d, std::int64_t times = 1) {
      hold += d * times;
      if (d < hold_min) hold_min = d;
      if (hold_max < d) hold_max = d;
    }
  };
  Side write, read;
  [[nodiscard]] Side& side(LockMode mode) {
    return mode == LockMode::kWrite ? write : read;
  }

  // "waiter's place waited so long while holder's place held it": places are attribution
  // nodes at the time of the wait's start.
  struct Blame {
    const CentreTree::Node* waiter;
    LockMode waiter_mode;
    const CentreTree::Node* holder;
    LockMode holder_mode;
    std::uint64_t count = 0;
    Duration wait{};
  };
  std::vector<Blame> blames;  // in order of first occurrence
  void blame(const CentreTree::Node* waiter, LockMode wm, const CentreTree::Node* holder,
             LockMode hm, Duration wait);

 private:
  std::size_t last_blamed_ = 0;  // most waits repeat the pair before
};

class LockRegistry {
 public:
  // The entry of that name; made on first use; stable address.
  LockStats& of(const std::string& name);
  [[nodiscard]] const std::deque<LockStats>& all() const { return all_; }  // by first use

 private:
  std::deque<LockStats> all_;
};

}  // namespace faultline
