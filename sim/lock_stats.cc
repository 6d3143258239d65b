// SPDX-License-Identifier: Apache-2.0
// Lock classes and who waited for whom.
#include "sim/lock_stats.h"

namespace faultline {

void LockStats::blame(const CentreTree::Node* waiter, LockMode wm,
                      const CentreTree::Node* holder, LockMode hm, Duration wait) {
  const auto same = [&](const Blame& b) {
    return b.waiter == waiter && b.holder == holder && b.waiter_mode == wm &&
           b.holder_mode == hm;
  };
  if (last_blamed_ >= blames.size() || !same(blames[last_blamed_])) {
    last_blamed_ = 0;
    while (last_blamed_ < blames.size() && !same(blames[last_blamed_])) ++last_blamed_;
    if (last_blamed_ == blames.size())
      blames.push_back(
          {.waiter = waiter, .waiter_mode = wm, .holder = holder, .holder_mode = hm});
  }
  Blame& b = blames[last_blamed_];
  ++b.count;
  b.wait += wait;
}

LockStats& LockRegistry::of(const std::string& name) {
  for (LockStats& stats : all_)
    if (stats.name == name) return stats;
  all_.emplace_back().name = name;
  return all_.back();
}

}  // namespace faultline
