// SPDX-License-Identifier: Apache-2.0
//
// A random mm program: a list of system calls and page touches inside one window of address
// space, made by one process and the ones it forks.  The same program runs on the live
// kernel and on the model; its text form is what a shrunk failure is reported as, and what
// the regression files hold.
//
// Text form, one operation a line ('#' starts a comment); offsets are into the window:
//   p0 mmap +0x3000 0x5000 rw- private,fixed
//   p0 write +0x3010 7
//   p0 fork p1
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace faultline::oracle {

inline constexpr std::uint64_t kWindowStart =
    0x2000'0000'0000;  // nothing else is near, nor what address sanitizer takes
inline constexpr std::uint64_t kWindowBytes = 32ull << 20;  // 16 PMDs of 2 MiB
inline constexpr unsigned kMaxProcs = 3;

enum class Call : std::uint8_t {
  kMmap,
  kMunmap,
  kMprotect,
  kMadvise,
  kMremap,
  kMlock,
  kMunlock,
  kMincore,
  kRead,
  kWrite,
  kFork,
  kExit,
  kMlockOnfault,
  kName,        // PR_SET_VMA_ANON_NAME
  kThpDisable,  // PR_SET_THP_DISABLE
};

struct Op {
  Call call = Call::kRead;
  unsigned proc = 0;
  std::uint64_t off = 0, len = 0;          // into the window; bytes
  std::uint64_t new_off = 0, new_len = 0;  // mremap
  unsigned prot = 0, flags = 0;            // PROT_*, MAP_* or MREMAP_*
  int advice = 0;
  // write: the byte; fork: the new process's number; name: 0 for none, or which;
  // thp_disable: 1 or 0.
  std::uint8_t value = 0;
};

inline constexpr std::array<const char*, 3> kAnonNames = {"none", "alpha", "beta"};

using Program = std::vector<Op>;

// What is wrong with a program's text: "file:line:col: …", what is accepted, the nearest
// name.
struct ProgramError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::string to_text(const Op& op);
[[nodiscard]] std::string to_text(const Program& program);
// Throws ProgramError.
[[nodiscard]] Program parse_program(const std::string& text, const std::string& file);
[[nodiscard]] std::string errno_text(int error);

// The names of what an operation uses: its call, its advice, its map flags.
[[nodiscard]] bool uses(const Op& op, const std::string& name);
// Whether it is a name of the kind that uses() knows.
[[nodiscard]] bool known_name(const std::string& name);

// What the generator may use.
struct Mix {
  bool fork = true;
  bool basic = false;   // only the calls of a plain allocator
  bool huge = true;     // MADV_HUGEPAGE and PMD-sized ranges
  bool hugetlb = true;  // MAP_HUGETLB, in some programs
  std::vector<std::string>
      without;  // names of calls, advice and map flags: touches instead
  std::uint64_t page = 4096;
};
[[nodiscard]] Program generate(std::uint64_t seed, unsigned ops, const Mix& mix);

}  // namespace faultline::oracle
