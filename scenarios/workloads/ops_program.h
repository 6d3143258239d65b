// SPDX-License-Identifier: Apache-2.0
//
// A program of allocator operations as text: how a bug report becomes a scenario.
//
//   a = malloc 120000        one more block on the stack `a`; sizes also as 16K, 2M, 1G
//   a = calloc 10 100        count, size of each
//   a = memalign 4096 100    alignment, size
//   a = realloc 5000         the newest block of `a` gets that size
//   write a                  every byte of all blocks of `a`; read a: every page
//   free a                   all, oldest first; free a reverse: newest first;
//                            free a last: the newest; free a first: the oldest;
//                            free a every 2: every second one, oldest first
//   trim 0                   malloc_trim
//   mallopt mmap_threshold 1M
//   sbrk 5000                somebody else moves the break; may be negative
//   sleep 100                microseconds
//   repeat 10 … end          so many times
//   threads 4 … end          in so many threads, started together; each has its own stacks
//   fork … parent … end      a child process does the first part, with copies of all
//                            blocks, and ends; this one does the second part meanwhile
//                            (it may be left out) and waits for the child
//   # a comment
//
// Reading allocates nothing, so that a program can be played on a malloc that nobody has
// used before.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace faultline::workloads {

struct MallocOp {
  enum Kind : std::uint8_t {
    kMalloc,
    kCalloc,
    kMemalign,
    kRealloc,
    kWrite,
    kRead,
    kFree,
    kTrim,
    kMallopt,
    kSbrk,
    kSleep,
    kRepeat,
    kThreads,
    kFork,
    kParent,
    kEnd
  };
  enum Which : std::uint8_t { kAll, kReverse, kLast, kFirst, kEvery };
  Kind kind = kEnd;
  Which which = kAll;
  std::uint8_t stack = 0;
  std::uint16_t end = 0;      // kRepeat, kThreads, kFork: the index of its kEnd
  std::uint16_t parent = 0;   // kFork: the index of its kParent, or of its kEnd
  std::int64_t a = 0, b = 0;  // the numbers, in the order of the text
};

struct OpsProgram {
  static constexpr std::size_t kMostOps = 1024, kMostStacks = 32;
  std::array<MallocOp, kMostOps> ops{};
  std::size_t size = 0;
  std::array<std::string_view, kMostStacks> stacks{};  // their names, in the text
  std::size_t stack_count = 0;
  bool has_fork = false;
};

// What is wrong with a text: line and column count from 1.
struct OpsProblem {
  const char* what = nullptr;  // null: nothing
  unsigned line = 0, column = 0;
  std::string_view word;      // the word at that place
  std::string_view accepted;  // what may stand there, if it is one of a few words
};

// `text` must outlive the program.
[[nodiscard]] OpsProblem read_ops(std::string_view text, OpsProgram& program);

}  // namespace faultline::workloads
