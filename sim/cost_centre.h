// SPDX-License-Identifier: Apache-2.0
//
// Attribution: where each virtual picosecond of each task went.
//
// A task always stands at one node of one tree.  A node is a stack of cost centres (its
// path to the root), named as the kernel or the program names its functions; time is added
// to the node under the state the task was in.  Every report (top stacks, flame graph,
// user/sys, lock waits) is a view of this tree, and its total is the sum of all tasks'
// lifetimes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "sim/time.h"

namespace faultline {

// What a task is doing with its time.  Running and spinning occupy a CPU; the others don't.
enum class TaskState : std::uint8_t {
  kRunning,
  kSpinning,
  kLockWait,
  kRunnable,
  kSleeping
};
inline constexpr std::size_t kTaskStates = 5;
[[nodiscard]] std::string_view name_of(TaskState state);

// A named place.  Identity is the object's address: declare one `inline constexpr` object a
// name (or keep run-time ones in a container with stable addresses).
struct Centre {
  std::string_view name;
  bool kernel = false;  // from here down the stack is system time
};

class CentreTree {
 public:
  struct Node {
    const Centre* centre;  // null for the root
    Node* parent;          // null for the root
    bool kernel;           // this centre or one above it is the kernel's
    std::array<Duration, kTaskStates> time{};
    std::vector<Node*> children{};  // in order of first use
    // The two children asked for last: most calls repeat or take turns.
    Node* last_child = nullptr;
    Node* child_before = nullptr;
    void add(TaskState s, Duration d) { time[static_cast<std::size_t>(s)] += d; }
  };

  CentreTree();
  CentreTree(const CentreTree&) = delete;
  CentreTree& operator=(const CentreTree&) = delete;

  [[nodiscard]] Node* root() { return &nodes_.front(); }
  [[nodiscard]] const std::deque<Node>& nodes() const {
    return nodes_;
  }  // in order of first use

  // The child of `parent` for `centre`; made on first use.
  Node* child(Node* parent, const Centre& centre) {
    if (Node* last = parent->last_child; last != nullptr && last->centre == &centre)
      return last;
    if (Node* before = parent->child_before; before != nullptr && before->centre == &centre)
      return before;
    return find_child(parent, centre);
  }
  // "a;b;c", root left out.
  [[nodiscard]] static std::string path(const Node& node);

 private:
  Node* find_child(Node* parent, const Centre& centre);
  std::deque<Node> nodes_;
};

}  // namespace faultline
