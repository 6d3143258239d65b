// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every host.
//
// A stream is a key made of a seed and a name; its n-th number is a function of key and n
// alone (SplitMix64's finaliser over a Weyl sequence).  So one more consumer doesn't shift
// the numbers of the others.  The distributions are ours, since those of std:: differ
// between libraries.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/check.h"

namespace faultline {

class Rng {
 public:
  Rng(std::uint64_t seed, std::string_view name) : key_(mix(seed ^ hash(name))) {}
  // A stream for one of many alike (thread 0, 1, ...).
  Rng(std::uint64_t seed, std::string_view name, std::uint64_t index)
      : key_(mix(mix(seed ^ hash(name)) + kWeyl * (index + 1))) {}

  std::uint64_t next() { return mix(key_ + kWeyl * ++count_); }

  // 0 ... n-1, each with the same probability (Lemire's method with rejection).
  std::uint64_t below(std::uint64_t n) {
    FAULTLINE_CHECK_GT(n, 0u);
    Wide product = Wide{next()} * n;
    if (static_cast<std::uint64_t>(product) < n) {
      const std::uint64_t threshold = (0 - n) % n;
      while (static_cast<std::uint64_t>(product) < threshold) product = Wide{next()} * n;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }
  // lo ... hi, both included.
  std::uint64_t between(std::uint64_t lo, std::uint64_t hi) {
    FAULTLINE_CHECK_LE(lo, hi);
    return hi - lo == UINT64_MAX ? next() : lo + below(hi - lo + 1);
  }
  // True in `of_times` out of `in_all` cases.
  bool chance(std::uint64_t of_times, std::uint64_t in_all) {
    return below(in_all) < of_times;
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  static constexpr std::uint64_t hash(std::string_view text) {  // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return h;
  }

  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

}  // namespace faultline
