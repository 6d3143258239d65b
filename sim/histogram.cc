// SPDX-License-Identifier: Apache-2.0
// Reading a histogram.
#include "sim/histogram.h"

#include "sim/check.h"

namespace faultline {

// Inverse of index_of: rows of 16 buckets, of width 1, 1, 2, 4, ...
std::uint64_t Histogram::low_of(std::size_t index) {
  const std::uint64_t row = index / kSub;
  if (row < 2) return index;
  return (kSub + index % kSub) << (row - 1);
}

std::uint64_t Histogram::at_most(std::uint64_t part, std::uint64_t whole) const {
  FAULTLINE_CHECK_GT(whole, 0u);
  FAULTLINE_CHECK_LE(part, whole);
  std::uint64_t seen = 0;
  for (const Bucket& bucket : buckets()) {
    seen += bucket.count;
    // seen / count >= part / whole, without rounding for counts below 2^32.
    if (seen * whole >= part * count_) return std::min(bucket.high, max_);
  }
  return max_;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  std::vector<Bucket> result;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0) result.push_back({low_of(i), low_of(i + 1) - 1, counts_[i]});
  return result;
}

}  // namespace faultline
