// SPDX-License-Identifier: Apache-2.0
// What lock operations cost by themselves, waiting apart.
#pragma once

#include "sim/time.h"

namespace faultline {

struct LockCosts {
  Duration atomic{};    // one uncontended atomic operation (acquire, or release)
  Duration handover{};  // cache-line transfer to the next owner of a contended lock
  // Added to it for each other waiter: ticket locks, whose waiters all spin on the line
  // that the owner writes and the next one must read.
  Duration handover_waiter{};
};

}  // namespace faultline
