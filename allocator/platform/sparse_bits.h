// SPDX-License-Identifier: Apache-2.0
//
// A set of numbers below a bound, with a fast way to the next member: bits, and above them
// bits that say which words of the level below hold any.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/platform/reserved.h"

namespace faultline::alloc {

class SparseBits {
 public:
  explicit SparseBits(std::uint64_t bound)
      : bound_(bound),
        members_(words(bound)),
        words_in_use_(words(words(bound))),
        runs_in_use_(words(words(words(bound)))) {}

  [[nodiscard]] bool contains(std::uint64_t i) const {
    return (members_[i / 64] >> i % 64 & 1) != 0;
  }
  void insert(std::uint64_t i) {
    std::uint64_t& word = members_[i / 64];
    if (word == 0) {
      words_in_use_[i / kRun] |= bit(i / 64);
      runs_in_use_[i / (kRun * 64)] |= bit(i / kRun);
    }
    word |= bit(i);
  }
  void erase(std::uint64_t i) {
    if ((members_[i / 64] &= ~bit(i)) != 0) return;
    if ((words_in_use_[i / kRun] &= ~bit(i / 64)) != 0) return;
    runs_in_use_[i / (kRun * 64)] &= ~bit(i / kRun);
  }
  // The least member from `i` on; the bound without one below `end`, and perhaps with one
  // behind.
  [[nodiscard]] std::uint64_t next(std::uint64_t i, std::uint64_t end) const {
    while (i < end) {
      if (const std::uint64_t left = members_[i / 64] >> i % 64; left != 0)
        return i + static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t word = i / 64 + 1;
      if (word % 64 == 0 || words_in_use_[word / 64] >> word % 64 == 0)
        i = next_run(word / 64 + (word % 64 == 0 ? 0 : 1), end);
      else
        i = (word + static_cast<unsigned>(
                        std::countr_zero(words_in_use_[word / 64] >> word % 64))) *
            64;
    }
    return bound_;
  }

 private:
  static constexpr std::uint64_t kRun = 64 * 64;  // members under one word of words_in_use_
  [[nodiscard]] static constexpr std::uint64_t words(std::uint64_t bits) {
    return (bits + 63) / 64;
  }
  [[nodiscard]] static constexpr std::uint64_t bit(std::uint64_t i) {
    return std::uint64_t{1} << i % 64;
  }
  // The first member's number of the next run from `run` on that has members.
  [[nodiscard]] std::uint64_t next_run(std::uint64_t run, std::uint64_t end) const {
    while (run * kRun < end) {
      if (const std::uint64_t left = runs_in_use_[run / 64] >> run % 64; left != 0) {
        run += static_cast<unsigned>(std::countr_zero(left));
        const auto word = static_cast<unsigned>(std::countr_zero(words_in_use_[run]));
        return run * kRun + word * 64;
      }
      run = (run / 64 + 1) * 64;
    }
    return end;
  }

  std::uint64_t bound_;
  Reserved<std::uint64_t> members_;
  Reserved<std::uint64_t> words_in_use_;  // a bit for each word of members_
  Reserved<std::uint64_t> runs_in_use_;   // a bit for each word of words_in_use_
};

}  // namespace faultline::alloc
