// SPDX-License-Identifier: Apache-2.0
//
// Lock-order checks: whoever takes locks of two classes in both orders can deadlock, even
// if this run doesn't.
//
// The first time that a task takes a lock of class B while it holds one of class A, the
// pair is kept with the place of both; if a chain of such pairs ever leads back, the run
// ends with the stacks of both orders.  A class is a LockStats entry.  Locks of one class
// held together count as classes of their own by depth, as with spin_lock_nested().  A lock
// that is only tried for can't deadlock, so it makes no pair, but those taken while it is
// held do.
//
// Stands for: check_prev_add(), check_noncircular(), check_deadlock()
// (kernel/locking/lockdep.c, v4.15-6.18).  Model: no interrupt contexts, no recursive
// readers.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost_centre.h"
#include "sim/time.h"

namespace faultline {

class Task;
struct LockStats;

class LockOrder {
 public:
  // Before the wait for a lock, if any.  Aborts if the order is wrong or the task holds it.
  void taking(const Task& task, const LockStats& kind, const void* lock);
  // A lock that was tried for and is held now.
  void tried(const Task& task, const LockStats& kind, const void* lock);
  void released(const Task& task, const void* lock);
  // Taken and given up at once: only the order counts.
  void passed(const Task& task, const LockStats& kind);
  // Pairs seen so far.
  [[nodiscard]] std::size_t pairs() const { return pairs_.size(); }

 private:
  struct Class {
    const LockStats* kind;
    unsigned depth;  // others of the kind that the task holds
    auto operator<=>(const Class&) const = default;
  };
  struct Held {
    Class lock_class;
    const void* lock;
    const CentreTree::Node* place;
  };
  // Who took `second` while holding `first` for the first time, and where it stood.
  struct Seen {
    std::string task;
    Time when;
    const CentreTree::Node *first, *second;
  };
  using Pair = std::pair<Class, Class>;

  std::vector<Held>& held_by(const Task& task);
  [[nodiscard]] static Class class_of(const std::vector<Held>& held, const LockStats& kind);
  void check(const Task& task, const std::vector<Held>& held, Class next);
  [[nodiscard]] bool find_chain(Class from, Class to, std::vector<Pair>& chain) const;
  [[noreturn]] void report(const Task& task, const Held& holds, Class next,
                           const std::vector<Pair>& chain) const;

  std::vector<std::vector<Held>> held_;  // by task id
  std::map<Pair, Seen> pairs_;
};

}  // namespace faultline
