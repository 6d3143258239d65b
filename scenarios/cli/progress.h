// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on stderr, if that is a terminal and the run takes more than a second.  It
// watches from its own host thread and touches no result.
#pragma once

#include <memory>

#include "scenarios/run/execute.h"

namespace faultline::cli {

class ProgressBar {
 public:
  // `progress` must outlive the bar.
  explicit ProgressBar(const scenario::ProgressList& progress);
  ~ProgressBar();  // wipes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  struct Watcher;
  std::unique_ptr<Watcher> watcher_;  // null: nobody looks
};

}  // namespace faultline::cli
