// SPDX-License-Identifier: Apache-2.0
//
// A histogram with buckets that grow with the value: each power of two is split into 16, so
// a bucket is never wider than 1/16 of its values.  Values below 32 are counted exactly.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace faultline {

class Histogram {
 public:
  struct Bucket {
    std::uint64_t low, high;  // both included
    std::uint64_t count;
  };

  void add(std::uint64_t value, std::uint64_t times = 1) {
    const std::size_t i = index_of(value);
    if (i >= counts_.size()) counts_.resize(i + 1);
    counts_[i] += times;
    count_ += times;
    sum_ += value * times;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t sum() const { return sum_; }
  [[nodiscard]] std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  [[nodiscard]] std::uint64_t max() const { return max_; }

  // The smallest bucket end (or max, if that is less) that `part` of `whole` values don't
  // exceed: at_most(99, 100) is the 99th percentile.
  [[nodiscard]] std::uint64_t at_most(std::uint64_t part, std::uint64_t whole) const;
  // Those that hold anything, in order of value.
  [[nodiscard]] std::vector<Bucket> buckets() const;

 private:
  static constexpr int kSubBits = 4;
  static constexpr std::uint64_t kSub = std::uint64_t{1} << kSubBits;

  static std::size_t index_of(std::uint64_t value) {
    const int shift = std::max(static_cast<int>(std::bit_width(value)) - kSubBits - 1, 0);
    return static_cast<std::size_t>(kSub) * static_cast<std::size_t>(shift) +
           static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t low_of(std::size_t index);

  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0, sum_ = 0, min_ = UINT64_MAX, max_ = 0;
};

}  // namespace faultline
