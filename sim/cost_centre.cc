// SPDX-License-Identifier: Apache-2.0
// The attribution tree: nodes are made on first use and never go away.
#include "sim/cost_centre.h"

namespace faultline {

std::string_view name_of(TaskState state) {
  switch (state) {
    case TaskState::kRunning:
      return "running";
    case TaskState::kSpinning:
      return "spinning";
    case TaskState::kLockWait:
      return "lock wait";
    case TaskState::kRunnable:
      return "runnable";
    case TaskState::kSleeping:
      return "sleeping";
  }
  return "?";
}

CentreTree::CentreTree() {
  nodes_.push_back(Node{.centre = nullptr, .parent = nullptr, .kernel = false});
}

CentreTree::Node* CentreTree::find_child(Node* parent, const Centre& centre) {
  parent->child_before = parent->last_child;
  for (Node* n : parent->children)
    if (n->centre == &centre) return parent->last_child = n;
  nodes_.push_back(
      Node{.centre = &centre, .parent = parent, .kernel = parent->kernel || centre.kernel});
  parent->children.push_back(&nodes_.back());
  return parent->last_child = &nodes_.back();
}

std::string CentreTree::path(const Node& node) {
  if (node.parent == nullptr) return {};
  std::string above = path(*node.parent);
  if (!above.empty()) above += ';';
  return above.append(node.centre->name);
}

}  // namespace faultline
