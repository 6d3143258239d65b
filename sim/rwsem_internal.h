// SPDX-License-Identifier: Apache-2.0
// What the rwsem's source files share: the records of waiting tasks.
#pragma once

#include "sim/rwsem.h"

namespace faultline {

// In the wait queue.
struct RwSem::Waiter {
  Task* task;
  LockMode mode;
  Time since;
  bool sleeping = false;     // must be woken; else it will look by itself
  bool woken = false;        // since it looked last, while it was spinning: it won't sleep
  bool granted = false;      // a reader: is inside
  bool handoff_set = false;  // 5.3: the handoff bit was set for it
};

// Spinning, in the OSQ or on the owner.
struct RwSem::Spinner {
  Task* task;
  bool waiting = false;  // until it is notified
};

}  // namespace faultline
