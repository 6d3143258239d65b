// SPDX-License-Identifier: Apache-2.0
//
// A resource that all who use it at once share (processor sharing): the memory bandwidth of a
// NUMA node.  Each transfer also has its own top rate (what one core can do).  Rates change when
// a transfer starts or ends; integer arithmetic only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/engine.h"

namespace faultline {

class SharedBandwidth {
 public:
  // Precondition: bytes_per_second > 0.
  SharedBandwidth(Engine& engine, std::uint64_t bytes_per_second);
  ~SharedBandwidth();

  // Moves `bytes` at no more than `max_rate`; the task is running meanwhile and the time is booked
  // where it stands.  May lose its CPU at slice ends; its share goes to the others then.
  void transfer(Task& task, std::uint64_t bytes, std::uint64_t max_rate);
};

}  // namespace faultline
