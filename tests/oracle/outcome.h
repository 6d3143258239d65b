// SPDX-License-Identifier: Apache-2.0
//
// What an operation, and the window after it, look like from outside; equal on both sides
// or there is a divergence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/oracle/program.h"

namespace faultline::oracle {

struct OpOutcome {
  std::int64_t result = 0;   // 0 or an offset into the window; -errno
  int signal = 0;            // 0, 11 (SIGSEGV), 7 (SIGBUS)
  std::uint64_t minflt = 0;  // of the calling process during the call
  bool operator==(const OpOutcome&) const = default;
};

struct VmaState {
  std::uint64_t start = 0, end = 0;  // offsets into the window, clipped to it
  std::string perms;                 // "rw-p"
  std::uint64_t rss = 0, anonymous = 0, anon_huge = 0, lazyfree = 0, locked = 0;  // kB
  std::string flags;  // of VmFlags, those that the model knows, sorted
  bool operator==(const VmaState&) const = default;
};

struct ProcState {
  std::vector<VmaState> vmas;
  // One letter a page: '.' not present, 'p' present.
  std::string pages;
  // First byte of each present page of a readable VMA, in page order; absent pages are left
  // out.
  std::vector<std::uint8_t> bytes;
  bool operator==(const ProcState&) const = default;
};

// One side of the comparison.  `run` executes an operation; `look` doesn't change anything.
class Side {
 public:
  virtual ~Side() = default;
  virtual OpOutcome run(const Op& op) = 0;
  virtual ProcState look(unsigned proc) = 0;
};

// A fresh process on the live kernel, with a runner of its own (fork of this one).
std::unique_ptr<Side> live_side();
// A fresh modelled process; `preset` is a kernel version that has one.
std::unique_ptr<Side> model_side(const std::string& preset);
// The preset for the kernel this runs on ("6.18" for 6.18.x on x86-64); "" if there is
// none.
std::string preset_of_host();

}  // namespace faultline::oracle
