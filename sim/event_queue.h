// SPDX-License-Identifier: Apache-2.0
//
// What is to happen, in order of (time, priority, sequence).
//
// A 4-ary heap: shallower than a binary one, and the four children lie in two cache lines.
// Nothing is ever removed from the middle; an entry that is no longer wanted is recognised
// by its target when it comes to the top (lazy cancel).
//
// Which child is the least can't be foretold, so it is found without branches: times and
// orders are compared as one number of 128 bits, and behind the last entry lie some that
// are later than any.
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
  };

  EventQueue() : heap_(kArity, kLast) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const Entry& top() const { return heap_.front(); }

  void push(const Entry& entry) {
    heap_.push_back(kLast);
    std::size_t hole = size_++;
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / kArity;
      if (key(heap_[parent]) < key(entry)) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = entry;
  }

  Entry pop() {
    const Entry result = heap_.front();
    const Entry last = heap_[--size_];
    heap_[size_] = kLast;
    heap_.pop_back();
    if (size_ != 0) sink(last);
    return result;
  }

  // The top; `entry` takes its place.  As pop() after push(entry), if that is not the
  // first.
  Entry exchange_top(const Entry& entry) {
    const Entry result = heap_.front();
    sink(entry);
    return result;
  }

 private:
  static constexpr std::size_t kArity = 4;
  static constexpr Entry kLast{Time::never(), UINT64_MAX, nullptr, nullptr};

  __extension__ using Key = unsigned __int128;
  [[nodiscard]] static Key key(const Entry& entry) {
    const auto time = static_cast<std::uint64_t>(entry.time.since_start().count_ps());
    return Key{time} << 64 | entry.order;
  }

  // Puts `entry` where the top was.
  void sink(const Entry& entry) {
    Entry* const heap = heap_.data();
    const Key sinking = key(entry);
    std::size_t hole = 0;
    for (std::size_t first = 1; first < size_; first = hole * kArity + 1) {
      std::size_t least = first;
      Key earliest = key(heap[first]);
      for (std::size_t child = first + 1; child < first + kArity; ++child) {
        const Key other = key(heap[child]);
        const bool earlier = other < earliest;
        least = earlier ? child : least;
        earliest = earlier ? other : earliest;
      }
      if (sinking < earliest) break;
      heap[hole] = heap[least];
      hole = least;
    }
    heap[hole] = entry;
  }

  std::size_t size_ = 0;
  std::vector<Entry> heap_;  // and kArity times kLast behind it
};

}  // namespace faultline
