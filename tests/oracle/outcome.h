// SPDX-License-Identifier: Apache-2.0
//
// What an operation, and the window after it, look like from outside; equal on both sides
// or there is a divergence.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/oracle/host.h"
#include "tests/oracle/program.h"

namespace faultline::oracle {

struct OpOutcome {
  std::int64_t result = 0;   // 0 or an offset into the window; -errno
  int signal = 0;            // 0, 11 (SIGSEGV), 7 (SIGBUS)
  std::uint64_t minflt = 0;  // of the calling process during the call
  bool operator==(const OpOutcome&) const = default;
};

// Left out: Referenced (the kernel's background work clears accessed bits), Size and page
// sizes (they say nothing new).
inline constexpr std::array<const char*, 14> kSmapsFields = {"Rss",
                                                             "Pss",
                                                             "Shared_Clean",
                                                             "Shared_Dirty",
                                                             "Private_Clean",
                                                             "Private_Dirty",
                                                             "Anonymous",
                                                             "LazyFree",
                                                             "AnonHugePages",
                                                             "Shared_Hugetlb",
                                                             "Private_Hugetlb",
                                                             "Swap",
                                                             "Locked",
                                                             "THPeligible"};

struct VmaState {
  std::uint64_t start = 0, end = 0;  // offsets into the window, clipped to it
  std::string perms;                 // "rw-p"
  std::string name;                  // "[anon:alpha]"
  // Lines of smaps, those of kSmapsFields in this order; kB, THPeligible 0 or 1.
  std::array<std::uint64_t, 14> fields{};
  std::string flags;  // VmFlags
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
  virtual Counters counters() = 0;
};

// A fresh process on the live kernel, with a runner of its own (fork of this one).
std::unique_ptr<Side> live_side();
// A fresh modelled process on a kernel with these settings.
std::unique_ptr<Side> model_side(const HostSettings& host);

}  // namespace faultline::oracle
