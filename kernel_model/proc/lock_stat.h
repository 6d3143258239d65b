// SPDX-License-Identifier: Apache-2.0
//
// /proc/lock_stat of the engine's locks.
//
// Stands for: seq_header(), seq_stats() (kernel/locking/lockdep_proc.c, v4.15-6.18). Model:
// a contention or acquisition counts as a bounce between CPUs; contention points are cost
// centres.
#pragma once

#include <string>

#include "sim/lock_stats.h"

namespace faultline::kernel {

[[nodiscard]] std::string lock_stat_text(const LockRegistry& locks);

}  // namespace faultline::kernel
