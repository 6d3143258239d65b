// SPDX-License-Identifier: Apache-2.0
#include "scenarios/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace faultline::cli {
namespace {

constexpr std::size_t kCells = 40;

// Each variant counts the same: how long each will take isn't known beforehand.
double fraction(const scenario::ProgressList& progress) {
  double sum = 0;
  for (const workloads::Progress& p : progress) {
    const auto total = p.total.load();
    if (total > 0) sum += static_cast<double>(p.done.load()) / static_cast<double>(total);
  }
  return progress.empty() ? 0 : sum / static_cast<double>(progress.size());
}

void draw(double done) {
  const auto full = static_cast<std::size_t>(done * static_cast<double>(kCells));
  const std::string bar = std::string(full, '#') + std::string(kCells - full, '.');
  std::fprintf(stderr, "\r[%s] %3.0f %%", bar.c_str(), done * 100);
}

}  // namespace

struct ProgressBar::Watcher {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::jthread thread;
};

ProgressBar::ProgressBar(const scenario::ProgressList& progress) {
  if (::isatty(STDERR_FILENO) == 0) return;
  watcher_ = std::make_unique<Watcher>();
  watcher_->thread =
      std::jthread([w = watcher_.get(), &progress](const std::stop_token& stop) {
        using namespace std::chrono_literals;
        std::unique_lock lock(w->mutex);
        bool drawn = false;
        for (auto pause = 1000ms; !stop.stop_requested(); pause = 100ms) {
          w->stopped.wait_for(lock, stop, pause, [] { return false; });
          if (stop.stop_requested()) break;
          draw(fraction(progress));
          drawn = true;
        }
        if (drawn) std::fprintf(stderr, "\r%*s\r", static_cast<int>(kCells) + 9, "");
      });
}

ProgressBar::~ProgressBar() = default;  // the thread stops and is joined

}  // namespace faultline::cli
