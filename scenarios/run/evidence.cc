// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/evidence.h"

#include <algorithm>

#include "scenarios/run/hog.h"

namespace faultline::scenario {
namespace {

Duration in_state(const CentreTree::Node& node, TaskState state) {
  return node.time[static_cast<std::size_t>(state)];
}

Frames frames_of(const CentreTree::Node* node) {
  Frames frames;
  for (; node != nullptr && node->parent != nullptr; node = node->parent)
    frames.emplace_back(node->centre->name);
  std::reverse(frames.begin(), frames.end());
  return frames;
}

std::size_t user_frames_of(const CentreTree::Node* node) {
  std::size_t n = 0;
  for (; node != nullptr && node->parent != nullptr; node = node->parent)
    n += node->kernel ? 0 : 1;
  return n;
}

Evidence::Lock lock_of(const LockStats& stats) {
  Evidence::Lock lock{stats.name, stats.write, stats.read, {}};
  for (const LockStats::Blame& b : stats.blames)
    lock.blames.push_back({frames_of(b.waiter), frames_of(b.holder), b.waiter_mode,
                           b.holder_mode, b.count, b.wait});
  return lock;
}

// The outermost function of a stack: a kernel thread's or the hog's is its own.
std::string_view root_of(const CentreTree::Node* node) {
  if (node->parent == nullptr) return {};
  while (node->parent->parent != nullptr) node = node->parent;
  return node->centre->name;
}

}  // namespace

bool is_kernel_thread(std::string_view name) {
  constexpr std::string_view kNames[] = {"khugepaged", "kswapd", "kcompactd"};
  return std::ranges::any_of(
      kNames, [&](std::string_view known) { return name.starts_with(known); });
}

bool is_of_program(std::string_view name) {
  return !is_kernel_thread(name) && !name.starts_with(kHogName);
}

Evidence gather_evidence(Engine& engine, Duration elapsed) {
  Evidence e;
  e.elapsed = elapsed;
  e.cpus = static_cast<unsigned>(engine.shape().node_of_cpu.size());
  e.tasks = static_cast<unsigned>(std::ranges::count_if(
      engine.tasks(), [](const auto& task) { return is_of_program(task->name()); }));
  for (const CentreTree::Node& node : engine.centres().nodes()) {
    const Duration running = in_state(node, TaskState::kRunning);
    const Duration spinning = in_state(node, TaskState::kSpinning);
    if (const std::string_view root = root_of(&node); !is_of_program(root)) {
      (is_kernel_thread(root) ? e.kernel_threads : e.pressure) += running + spinning;
      continue;
    }
    const Duration lock_wait = in_state(node, TaskState::kLockWait);
    e.running += running;
    e.spinning += spinning;
    e.lock_wait += lock_wait;
    e.runnable += in_state(node, TaskState::kRunnable);
    e.sleeping += in_state(node, TaskState::kSleeping);
    (node.kernel ? e.sys : e.user) += running + spinning;
    if (running + spinning + lock_wait > Duration{})
      e.stacks.push_back({frames_of(&node), user_frames_of(&node), running + spinning,
                          spinning, lock_wait});
  }
  for (const LockStats& stats : engine.locks().all()) e.locks.push_back(lock_of(stats));
  return e;
}

}  // namespace faultline::scenario
