// SPDX-License-Identifier: Apache-2.0
//
// Locks in virtual time: the queued spinlock, the sleeping mutex (which is the user's futex
// lock, too) and the reader-writer semaphore.  Each operation is a shared effect: it
// synchronises first. Costs of the uncontended operation are the caller's LockCosts.
#pragma once

#include "sim/mutex.h"       // IWYU pragma: export
#include "sim/rwsem.h"       // IWYU pragma: export
#include "sim/spin_lock.h"   // IWYU pragma: export
#include "sim/spin_mutex.h"  // IWYU pragma: export
