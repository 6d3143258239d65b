// SPDX-License-Identifier: Apache-2.0
//
// A resource that all who use it at once share (processor sharing): the memory bandwidth of
// a NUMA node.  Each transfer also has its own top rate (what one core can do).
//
// Rates follow max-min fairness ("water-filling"): nobody gets more than an equal share
// unless the others can't use theirs.  They change only when a transfer starts or ends.
//
// Transfers with the same top rate form a class and always have the same rate, so one
// number says how much each member was served since the start of time; a member is over
// when that number reaches its mark.  A change costs a step a class, not a step a transfer.
// Integer arithmetic: service is counted in bytes x 10^12, so that rate x picoseconds is
// exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/engine.h"

namespace faultline {

class SharedBandwidth {
 public:
  // Precondition: bytes_per_second > 0.  The engine must outlive it.
  SharedBandwidth(Engine& engine, std::uint64_t bytes_per_second);
  ~SharedBandwidth();
  SharedBandwidth(const SharedBandwidth&) = delete;
  SharedBandwidth& operator=(const SharedBandwidth&) = delete;

  // Moves `bytes` at no more than `max_rate`; the task is running meanwhile and the time is
  // booked where it stands.  May lose its CPU at slice ends; its share goes to the others
  // then.
  void transfer(Task& task, std::uint64_t bytes, std::uint64_t max_rate);

  [[nodiscard]] std::uint64_t bytes_per_second() const { return capacity_; }

 private:
  struct Transfer;
  struct RateClass;
  RateClass& class_of(std::uint64_t max_rate);
  void join(Transfer& transfer);
  void leave(Transfer& transfer);
  void advance();
  void share_out();
  void complete();

  Engine* engine_;
  std::uint64_t capacity_;
  std::vector<std::unique_ptr<RateClass>>
      classes_;             // by top rate, lowest first; never removed
  std::size_t active_ = 0;  // transfers in all of them
  Time advanced_to_;
  Engine::EventId completion_ = 0;
  bool completion_due_ = false;
};

}  // namespace faultline
