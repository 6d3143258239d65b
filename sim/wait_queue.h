// SPDX-License-Identifier: Apache-2.0
//
// Tasks in order of arrival.  The links live on the waiters' own stacks, as in the kernel:
// a lock that nobody waits for is two pointers, and queueing allocates nothing.
#pragma once

namespace faultline {

class Task;

struct Waiter {
  Task* task;
  Waiter* next = nullptr;
};

class WaitQueue {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] Waiter& front() const { return *first_; }
  void push(Waiter& waiter) {
    (first_ == nullptr ? first_ : last_->next) = &waiter;
    last_ = &waiter;
    ++size_;
  }
  [[nodiscard]] int size() const { return size_; }
  Waiter& pop() {
    --size_;
    Waiter& waiter = *first_;
    first_ = waiter.next;
    return waiter;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  int size_ = 0;
};

}  // namespace faultline
