// SPDX-License-Identifier: Apache-2.0
#include "sim/lock_order.h"

#include <algorithm>

#include "sim/check.h"
#include "sim/lock_stats.h"
#include "sim/task.h"

namespace faultline {

std::vector<LockOrder::Held>& LockOrder::held_by(const Task& task) {
  if (held_.size() <= task.id()) held_.resize(task.id() + 1);
  return held_[task.id()];
}

LockOrder::Class LockOrder::class_of(const std::vector<Held>& held, const LockStats& kind) {
  const auto same = std::count_if(
      held.begin(), held.end(), [&](const Held& h) { return h.lock_class.kind == &kind; });
  return {&kind, static_cast<unsigned>(same)};
}

void LockOrder::taking(const Task& task, const LockStats& kind, const void* lock) {
  std::vector<Held>& held = held_by(task);
  for (const Held& h : held)
    if (h.lock == lock)
      check::fail(__FILE__, __LINE__, "a task doesn't wait for itself",
                  "task \"" + task.name() + "\" holds \"" + kind.name + "\", taken in\n  " +
                      CentreTree::path(*h.place) + "\nand takes it again in\n  " +
                      CentreTree::path(*task.where()));
  const Class next = class_of(held, kind);
  check(task, held, next);
  held.push_back({next, lock, task.where()});
}

void LockOrder::tried(const Task& task, const LockStats& kind, const void* lock) {
  std::vector<Held>& held = held_by(task);
  held.push_back({class_of(held, kind), lock, task.where()});
}

void LockOrder::released(const Task& task, const void* lock) {
  std::vector<Held>& held = held_by(task);
  const auto it = std::find_if(held.rbegin(), held.rend(),
                               [&](const Held& h) { return h.lock == lock; });
  if (it != held.rend()) held.erase(std::next(it).base());
}

void LockOrder::passed(const Task& task, const LockStats& kind) {
  const std::vector<Held>& held = held_by(task);
  check(task, held, class_of(held, kind));
}

void LockOrder::check(const Task& task, const std::vector<Held>& held, Class next) {
  for (const Held& h : held) {
    const Pair pair{h.lock_class, next};
    if (h.lock_class == next || pairs_.contains(pair)) continue;
    std::vector<Pair> chain;
    if (find_chain(next, h.lock_class, chain)) report(task, h, next, chain);
    pairs_.emplace(pair, Seen{task.name(), task.now(), h.place, task.where()});
  }
}

// Pairs that lead from one class to the other.  There is no circle among them yet.
bool LockOrder::find_chain(Class from, Class to, std::vector<Pair>& chain) const {
  for (const auto& [pair, seen] : pairs_) {
    if (pair.first != from) continue;
    chain.push_back(pair);
    if (pair.second == to || find_chain(pair.second, to, chain)) return true;
    chain.pop_back();
  }
  return false;
}

void LockOrder::report(const Task& task, const Held& holds, Class next,
                       const std::vector<Pair>& chain) const {
  const auto name = [](Class c) {
    return '"' + c.kind->name + (c.depth > 0 ? "/" + std::to_string(c.depth) : "") + '"';
  };
  const auto step = [&](const std::string& who, Class first, Class second,
                        const CentreTree::Node& first_at,
                        const CentreTree::Node& second_at) {
    return "task \"" + who + "\" holds " + name(first) + ", taken in\n  " +
           CentreTree::path(first_at) + "\nand takes " + name(second) + " in\n  " +
           CentreTree::path(second_at);
  };
  std::string text = step(task.name(), holds.lock_class, next, *holds.place, *task.where());
  for (const Pair& pair : chain) {
    const Seen& seen = pairs_.at(pair);
    text += "\nbut before, at " + check::text(seen.when) + ", " +
            step(seen.task, pair.first, pair.second, *seen.first, *seen.second);
  }
  check::fail(__FILE__, __LINE__, "locks are always taken in one order", text);
}

}  // namespace faultline
