// SPDX-License-Identifier: Apache-2.0
//
// What is to happen, in order of (time, priority, sequence).
//
// A 4-ary heap: shallower than a binary one, and the four children lie in two cache lines.
// Nothing is ever removed from the middle; an entry that is no longer wanted is recognised
// by its target when it comes to the top (lazy cancel).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/time.h"

namespace faultline {

class Task;

class EventQueue {
 public:
  struct Callback;  // the engine's

  struct Entry {
    Time time;
    std::uint64_t order;  // priority above, sequence below: unique
    Task* task;           // one of these two is set
    Callback* callback;

    [[nodiscard]] bool before(const Entry& other) const {
      return time < other.time || (time == other.time && order < other.order);
    }
  };

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] const Entry& top() const { return heap_.front(); }

  void push(const Entry& entry) {
    heap_.push_back(entry);
    std::size_t hole = heap_.size() - 1;
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / kArity;
      if (!entry.before(heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = entry;
  }

  // pop() and push(entry) at once.
  Entry replace_top(const Entry& entry) {
    const Entry result = heap_.front();
    sink(entry);
    return result;
  }
  Entry pop() {
    const Entry result = heap_.front();
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return result;
  }

 private:
  static constexpr std::size_t kArity = 4;

  // Puts `entry` where the top was.
  void sink(const Entry& entry) {
    const std::size_t size = heap_.size();
    std::size_t hole = 0;
    for (;;) {
      const std::size_t first = hole * kArity + 1;
      if (first >= size) break;
      const std::size_t end = first + kArity < size ? first + kArity : size;
      std::size_t least = first;
      for (std::size_t c = first + 1; c < end; ++c)
        if (heap_[c].before(heap_[least])) least = c;
      if (!heap_[least].before(entry)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = entry;
  }

  std::vector<Entry> heap_;
};

}  // namespace faultline
