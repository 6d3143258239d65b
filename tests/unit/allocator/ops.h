// SPDX-License-Identifier: Apache-2.0
//
// A random program of allocator calls, the same for every world that plays it.
//
// Allocates nothing itself, so that it can run where the allocator under test is the only
// one.
#pragma once

#include <array>
#include <cstdint>

namespace faultline::alloc::ops {

struct Op {
  enum Kind : std::uint8_t {
    kMalloc,
    kCalloc,
    kRealloc,
    kMemalign,
    kFree,
    kTrim
  } kind = kMalloc;
  unsigned slot = 0;
  std::uint64_t size = 0;
  std::uint64_t alignment = 0;
};

inline constexpr unsigned kSlots = 256;

class Source {
 public:
  explicit Source(std::uint64_t seed) : state_(seed) {}

  Op next() {
    Op op;
    op.slot = static_cast<unsigned>(draw() % kSlots);
    const std::uint64_t dice = draw() % 100;
    if (dice == 0 && draw() % 10 == 0) {
      op.kind = Op::kTrim;
    } else if (live_[op.slot]) {
      op.kind = dice < 20 ? Op::kRealloc : Op::kFree;
    } else {
      op.kind = dice < 80 ? Op::kMalloc : dice < 90 ? Op::kCalloc : Op::kMemalign;
      op.alignment = std::uint64_t{16} << draw() % 9;
    }
    if (op.kind != Op::kTrim) live_[op.slot] = op.kind != Op::kFree;
    op.size = 1 + size();
    return op;
  }

 private:
  std::uint64_t draw() {
    std::uint64_t z = state_ += 0x9e37'79b9'7f4a'7c15;
    z = (z ^ z >> 30) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
    return z ^ z >> 31;
  }
  std::uint64_t size() {
    switch (draw() % 24) {
      case 0:
        return draw() % 2'000'000;
      case 1:
        return draw() % 200'000;
      case 2:
      case 3:
      case 4:
        return draw() % 20'000;
      case 5:
      case 6:
      case 7:
      case 8:
        return draw() % 2'000;
      default:
        return draw() % 300;
    }
  }
  std::uint64_t state_;
  std::array<bool, kSlots> live_{};
};

}  // namespace faultline::alloc::ops
